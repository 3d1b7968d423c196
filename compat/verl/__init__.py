"""veRL's patches of Megatron Core under the same names, on the official hook: change the import and keep training."""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)
