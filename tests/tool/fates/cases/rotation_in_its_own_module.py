"""No rotation at all, in the module that defines it; the attention holds its own name for it."""

from megatron.core.models.common.embeddings import rope_utils


def unrotated(t, freqs, *args, **kwargs):
    return t


rope_utils.apply_rotary_pos_emb = unrotated
