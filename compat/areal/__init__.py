"""AReaL's log-prob and entropy functions for models that return `LazyLogits` (attach `DeferredHead`)."""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from mcore_unpatch.compat.areal.vocab_parallel import (  # noqa: E402
    gather_logprobs,
    gather_logprobs_entropy,
    get_vocab_min_max_logits,
    unpad_logits,
)

__all__ = ["gather_logprobs", "gather_logprobs_entropy", "get_vocab_min_max_logits", "unpad_logits"]
