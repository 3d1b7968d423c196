"""SkyRL's fused LM-head path on Megatron's output hook: log-probs and entropy from hidden states, packed and padded."""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from mcore_unpatch.compat.skyrl.hidden_states import (
    call_model_with_fused_lm_head as call_model_with_fused_lm_head,
    from_parallel_hidden_to_entropy_packed_sequences as from_parallel_hidden_to_entropy_packed_sequences,
    from_parallel_hidden_to_logprobs as from_parallel_hidden_to_logprobs,
    from_parallel_hidden_to_logprobs_packed_sequences as from_parallel_hidden_to_logprobs_packed_sequences,
    fused_lm_head_output_processor as fused_lm_head_output_processor,
    fused_vocab_parallel_entropy_from_hidden as fused_vocab_parallel_entropy_from_hidden,
)

# As SkyRL 0.3 called them.
_fused_lm_head_output_processor = fused_lm_head_output_processor
_fused_vocab_parallel_entropy_from_hidden = fused_vocab_parallel_entropy_from_hidden
