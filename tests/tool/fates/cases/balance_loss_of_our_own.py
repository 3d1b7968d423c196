"""A balance loss that counts every expert alike."""

from megatron.core.transformer.moe import router


def balance_loss(probs, tokens_per_expert, total_num_tokens, topk, num_experts, moe_aux_loss_coeff, fused=False):
    share = tokens_per_expert / (total_num_tokens * topk)
    return (probs.mean(0) * share).sum() * num_experts * moe_aux_loss_coeff


router.switch_load_balancing_loss_func = balance_loss
