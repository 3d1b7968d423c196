"""Our patches of Megatron, each with a function that makes it."""

from tiny_rl.megatron.fused_forward import patch_forward, unpatch_forward
from tiny_rl.megatron.mtp import patch_mtp

__all__ = ["patch_forward", "patch_mtp", "unpatch_forward"]
