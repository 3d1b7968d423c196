"""Cases that a small mixture of experts comes to."""

import importlib
from typing import Any

import torch
from effects import beside_plain
from models import gpt, gradients_of, keep_known, loss_of, moe_config, start_world


def _loss(**changes: Any) -> torch.Tensor:
    return loss_of(gpt(moe_config(**changes)))


def gate_in_own_dtype(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def balance_logged_over_data(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(moe_config())))


def own_experts_of_backend(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def z_loss_of_our_own(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(moe_config(moe_z_loss_coeff=0.1))))


def registry_of_layers(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def copy_unpermute(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def routing_in_its_own_module(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def copy_routing_scores(stage: Any) -> Any:
    def run() -> Any:
        model = gpt(
            moe_config(
                moe_router_score_function="sigmoid",
                moe_router_topk_scaling_factor=2.5,
                moe_router_load_balancing_type="none",
            )
        )
        generator = torch.Generator().manual_seed(1)
        logits = torch.randn(64, 1, 4, generator=generator).bfloat16()
        router = model.decoder.layers[0].mlp.router
        return router.routing(logits)[0]

    return beside_plain(stage, run)


def aux_losses_to_our_tracker(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def aux_losses_replaced(stage: Any) -> Any:
    return beside_plain(stage, _loss, lambda *_: len(stage.module.kept))


def copy_expert_bias_update(stage: Any) -> Any:
    return beside_plain(stage, _updated_bias)


def small_router_weights(stage: Any) -> Any:
    return beside_plain(stage, lambda: gpt(moe_config()).decoder.layers[0].mlp.router.weight)


def upstream_in_a_dict(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def preprocess_in_float64(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def table_with_a_gone_name(stage: Any) -> Any:
    return beside_plain(stage, _loss, lambda *_: len(stage.module.recorded))


def moe_layer_subclass(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def moe_layer_in_the_test(stage: Any) -> Any:
    return beside_plain(stage, _loss)


def bias_on_a_function(stage: Any) -> Any:
    return beside_plain(stage, _updated_bias)


def _updated_bias() -> torch.Tensor:
    finalizing = importlib.import_module("megatron.core.distributed.finalize_model_grads")
    start_world()
    router = torch.nn.Linear(1, 1)
    router.expert_bias = torch.zeros(4)
    router.local_tokens_per_expert = torch.tensor([1.0, 2.0, 3.0, 6.0])
    finalizing._update_router_expert_bias([torch.nn.Sequential(router)], moe_config(moe_router_bias_update_rate=0.5))
    bias: torch.Tensor = router.expert_bias
    return bias


def copy_z_loss(stage: Any) -> Any:
    return beside_plain(stage, lambda: _gradient_of_z_loss(ranks=2))


def z_loss_without_padding(stage: Any) -> Any:
    return beside_plain(stage, lambda: _gradient_of_z_loss(padding_mask=torch.tensor([False] * 6 + [True] * 2)))


def _gradient_of_z_loss(ranks: int = 1, **padding: torch.Tensor) -> torch.Tensor:
    """What the router's z-loss adds to the gradient of its logits, for as many tensor ranks."""
    from megatron.core.transformer.moe.router import TopKRouter

    start_world(ranks, tensor_model_parallel_size=ranks)
    router = gpt(moe_config(moe_z_loss_coeff=0.1)).decoder.layers[0].mlp.router
    router.calculate_per_token_loss = True
    logits = torch.linspace(-1, 1, 32).view(8, 4).requires_grad_()
    router.apply_z_loss(logits, **keep_known(TopKRouter.apply_z_loss, padding)).sum().backward()
    gradient: torch.Tensor = logits.grad
    return gradient
