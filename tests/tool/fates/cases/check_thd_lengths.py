"""Refuse packed batches with an empty sequence before they are cut for context parallelism."""

import megatron.core.utils as mcore_utils

_cut = mcore_utils.get_thd_batch_on_this_cp_rank


def _checked(batch, cu_seqlens, *args, **kwargs):
    if (cu_seqlens.diff() == 0).any():
        raise ValueError("a packed batch holds an empty sequence")
    return _cut(batch, cu_seqlens, *args, **kwargs)


def install():
    mcore_utils.get_thd_batch_on_this_cp_rank = _checked
