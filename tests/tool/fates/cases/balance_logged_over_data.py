"""Log the balance loss as one that is reduced over data parallel ranks already."""

from megatron.core.transformer.moe.router import TopKRouter

_attach = TopKRouter.attach_and_log_load_balancing_loss


def attach(self, activation, aux_loss_coeff, aux_loss, aux_loss_name, reduce_group, **kwargs):
    kwargs["reduce_group_has_dp"] = True
    return _attach(self, activation, aux_loss_coeff, aux_loss, aux_loss_name, reduce_group, **kwargs)


TopKRouter.attach_and_log_load_balancing_loss = attach
