"""veRL's patches of Megatron Core as they are called, on the official hook: import from here and keep training."""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)
