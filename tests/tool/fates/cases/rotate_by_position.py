"""Rotate twice as far, with Megatron's own rotation."""

from megatron.core.models.common.embeddings import rope_utils
from megatron.core.transformer import multi_latent_attention


def rotate(t, freqs, config, cu_seqlens=None, mscale=1.0, cp_group=None, **flags):
    return rope_utils._apply_rotary_pos_emb_bshd(t, freqs * 2, config.rotary_interleaved, True, mscale)


multi_latent_attention.apply_rotary_pos_emb = rotate
