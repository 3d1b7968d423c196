"""The z-loss as 0.18 had it, without Megatron's record of it."""

from megatron.core.transformer.moe.moe_utils import MoEAuxLossAutoScaler, z_loss_func
from megatron.core.transformer.moe.router import TopKRouter


def apply_z_loss(self, logits, padding_mask=None):
    if self.config.moe_z_loss_coeff is None or not self.training:
        return logits
    coefficient = self.config.moe_z_loss_coeff / self.tp_cp_group.size()
    loss = z_loss_func(logits, coefficient, padding_mask=padding_mask)
    if self.calculate_per_token_loss:
        loss = loss * logits.shape[0]
    return MoEAuxLossAutoScaler.apply(logits, loss)


TopKRouter.apply_z_loss = apply_z_loss
