"""NeMo RL's fused linear log-probs on Megatron's output hook; replaces the class patch of `GPTModel.forward`."""

from mcore_unpatch.compat.requirements import require_megatron

require_megatron(__name__)

from mcore_unpatch.compat.nemo_rl.install import (
    NextTokenLogProbs as NextTokenLogProbs,
    from_parallel_hidden_states_to_logprobs as from_parallel_hidden_states_to_logprobs,
    linear_ce_fusion_kwargs as linear_ce_fusion_kwargs,
    patch_gpt_model_forward_for_linear_ce_fusion as patch_gpt_model_forward_for_linear_ce_fusion,
    unpatch_gpt_model_forward_for_linear_ce_fusion as unpatch_gpt_model_forward_for_linear_ce_fusion,
)
