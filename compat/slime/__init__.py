"""slime's log-prob and entropy functions for models that return `LazyLogits` (attach `DeferredHead`)."""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from mcore_unpatch.compat.slime.log_probs import (
    calculate_log_probs_and_entropy as calculate_log_probs_and_entropy,
    get_label_token_log_probs_from_vocab_parallel_logits as get_label_token_log_probs_from_vocab_parallel_logits,
    get_log_probs_and_entropy as get_log_probs_and_entropy,
)
