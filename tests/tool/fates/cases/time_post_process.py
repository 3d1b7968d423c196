"""Note when the last node of a schedule plan runs."""

import time

from megatron.core.models.gpt.fine_grained_callables import PostProcessNode

started = []
_forward_impl = PostProcessNode.forward_impl


def forward_impl(self, *args, **kwargs):
    started.append(time.monotonic())
    return _forward_impl(self, *args, **kwargs)


PostProcessNode.forward_impl = forward_impl
