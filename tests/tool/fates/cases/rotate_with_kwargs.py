"""Megatron's rotation in float64, as it was before the flag for MLA was renamed."""

import torch
from megatron.core.models.common.embeddings import rope_utils


def rotate(t, freqs, rotary_interleaved=False, multi_latent_attention=False, mscale=1.0, **_):
    width = freqs.shape[-1]
    turned, kept = t[..., :width].double(), t[..., width:]
    if multi_latent_attention:
        turned = torch.cat((turned[..., 0::2], turned[..., 1::2]), dim=-1)
    first, second = turned.chunk(2, dim=-1)
    cos, sin = (f(freqs.double()) * mscale for f in (torch.cos, torch.sin))
    turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((turned.to(t.dtype), kept), dim=-1)


rope_utils._apply_rotary_pos_emb_bshd = rotate
