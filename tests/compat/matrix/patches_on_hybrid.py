"""One patch of each kind, as downstreams write them: the tool reads this file, and ranks run it.

Each function makes one patch, before the model is built, or of the model that it is given.
"""

from collections.abc import Callable
from typing import Any

import torch
from harness import models
from megatron.core.models.common.language_module.language_module import LanguageModule
from megatron.core.models.common.model_chunk_schedule_plan import TransformerModelChunkSchedulePlan
from megatron.core.models.gpt import gpt_model
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.models.hybrid.hybrid_block import HybridStack
from megatron.core.models.hybrid.hybrid_model import HybridModel
from megatron.core.models.mamba.mamba_model import MambaModel
from megatron.core.pipeline_parallel import combined_1f1b
from megatron.core.tensor_parallel.random import CheckpointFunction
from megatron.core.transformer import transformer_block, transformer_layer
from megatron.core.transformer.attention import Attention
from megatron.core.transformer.mlp import MLP
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer
from megatron.core.transformer.transformer_block import TransformerBlock
from megatron.core.transformer.transformer_layer import TransformerLayer

SEEN: list[int] = []  # one for each call of what is put in place: the number of its layer, if that is asked for


def method_of_the_model() -> None:
    original = GPTModel.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(self, *args, **kwargs)

    GPTModel.forward = forward


def name_in_the_module_of_the_model() -> None:
    original = gpt_model.process_mtp_loss

    def process_mtp_loss(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    gpt_model.process_mtp_loss = process_mtp_loss


def method_of_the_old_hybrid_model() -> None:
    original = MambaModel.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(self, *args, **kwargs)

    MambaModel.forward = forward


def method_of_the_block() -> None:
    original = TransformerBlock.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(self, *args, **kwargs)

    TransformerBlock.forward = forward


def name_in_the_module_of_the_block() -> None:
    original = transformer_block.make_viewless_tensor

    def make_viewless_tensor(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    transformer_block.make_viewless_tensor = make_viewless_tensor


def offset_of_a_layer() -> None:
    original = transformer_layer.get_transformer_layer_offset

    def offset(*args: Any, **kwargs: Any) -> int:
        SEEN.append(0)
        return int(original(*args, **kwargs))

    transformer_layer.get_transformer_layer_offset = offset


def method_of_the_layer() -> None:
    original = TransformerLayer._forward_attention

    def forward_attention(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(self, *args, **kwargs)

    TransformerLayer._forward_attention = forward_attention


def layers_one_by_one(model: Any) -> None:
    for layer in model.decoder.layers:
        original = layer.forward

        def forward(*args: Any, original: Callable[..., Any] = original, **kwargs: Any) -> Any:
            SEEN.append(0)
            return original(*args, **kwargs)

        layer.forward = forward


def plan_of_a_model() -> None:
    original = TransformerModelChunkSchedulePlan.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        SEEN.append(0)
        original(self, *args, **kwargs)

    TransformerModelChunkSchedulePlan.__init__ = init


def step_of_the_combined_schedule() -> None:
    original = combined_1f1b.combined_forward_backward_step

    def step(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    combined_1f1b.combined_forward_backward_step = step


def layer_of_mtp() -> None:
    original = MultiTokenPredictionLayer._get_embeddings

    def embeddings(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(self.layer_number)
        return original(self, *args, **kwargs)

    MultiTokenPredictionLayer._get_embeddings = embeddings


def attention() -> None:
    original = Attention.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(self, *args, **kwargs)

    Attention.forward = forward


def attention_by_its_number() -> None:
    original = Attention.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(self.layer_number)
        return original(self, *args, **kwargs)

    Attention.forward = forward


def routes_by_a_helper() -> None:
    original = TopKRouter.routing

    def routing(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(_number(self))
        return original(self, *args, **kwargs)

    TopKRouter.routing = routing


def _number(router: Any) -> int:
    return int(router.layer_number)


def number_that_is_handed_on() -> None:
    original = TopKRouter.set_layer_number

    def set_layer_number(self: Any, layer_number: int) -> None:
        SEEN.append(0)
        original(self, layer_number)

    TopKRouter.set_layer_number = set_layer_number


def mlp() -> None:
    original = MLP.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(self, *args, **kwargs)

    MLP.forward = forward


def loss_of_every_language_model() -> None:
    original = LanguageModule.compute_language_model_loss

    def compute(self: Any, labels: Any, logits: Any) -> Any:
        SEEN.append(0)
        return original(self, labels, logits)

    LanguageModule.compute_language_model_loss = compute


def backward_of_recomputation() -> None:
    original = CheckpointFunction.backward

    def backward(ctx: Any, *args: Any) -> Any:
        SEEN.append(0)
        return original(ctx, *args)

    CheckpointFunction.backward = staticmethod(backward)


def output_layer(model: Any) -> None:
    original = model.output_layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    model.output_layer.forward = forward


class Head(torch.nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, hidden: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return self.layer(hidden, **kwargs)


def another_output_layer(model: GPTModel) -> None:
    model.output_layer = Head(model.output_layer)


def forward_of_one_model(model: GPTModel) -> None:
    original = model.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    model.forward = forward.__get__(model)


def end_of_one_model(model: GPTModel) -> None:
    original = model._postprocess if hasattr(model, "_postprocess") else None

    def postprocess(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    model._postprocess = postprocess.__get__(model)


def beginning_of_one_model(model: GPTModel) -> None:
    original = model.forward

    def forward(self: Any, input_ids: Any, position_ids: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        self._preprocess(input_ids, position_ids)
        return original(input_ids, position_ids, *args, **kwargs)

    model.forward = forward.__get__(model)


def more_for_the_blocks_of_one_model(model: GPTModel) -> None:
    original = model.forward

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, extra_block_kwargs={}, **kwargs)

    model.forward = forward.__get__(model)


def block_that_is_asked_for(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, TransformerBlock):
            original = module.forward

            def forward(*args: Any, original: Any = original, **kwargs: Any) -> Any:
                SEEN.append(0)
                return original(*args, **kwargs)

            module.forward = forward


STACKS = (TransformerBlock, HybridStack)


def either_block_that_is_asked_for(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, STACKS):
            original = module.forward

            def forward(*args: Any, original: Any = original, **kwargs: Any) -> Any:
                SEEN.append(0)
                return original(*args, **kwargs)

            module.forward = forward


def model_that_has_to_be_one(model: Any) -> None:
    assert isinstance(model, GPTModel)
    original = model.output_layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    model.output_layer.forward = forward


def model_that_must_not_be_one(model: Any) -> None:
    if isinstance(model, HybridModel):
        return
    original = model.output_layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    model.output_layer.forward = forward


def _unwrapped(model: Any) -> Any:
    if isinstance(model, GPTModel):
        return model
    print("this model is not supported")
    return None


def what_a_helper_gives(model: Any) -> None:
    model = _unwrapped(model)
    if model is not None:
        original = model.output_layer.forward

        def forward(*args: Any, **kwargs: Any) -> Any:
            SEEN.append(0)
            return original(*args, **kwargs)

        model.output_layer.forward = forward


def _found(model: Any) -> Any:
    while not isinstance(model, GPTModel) and hasattr(model, "module"):
        model = model.module
    if isinstance(model, GPTModel):
        return model
    raise TypeError(f"no GPTModel in a {type(model)}")


def what_a_strict_helper_gives(model: Any) -> None:
    found = _found(model)
    original = found.output_layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    found.output_layer.forward = forward


class OwnModel(GPTModel):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        wrap_the_head(self)


def wrap_the_head(own: Any) -> None:
    original = own.output_layer.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        SEEN.append(0)
        return original(*args, **kwargs)

    own.output_layer.forward = forward


def model_of_our_own() -> None:
    models.GPTModel = OwnModel


# What may be changed, to be put back: objects, and those of their names that are patched here.
CHANGED = (
    *((cls, "forward") for cls in (GPTModel, MambaModel, TransformerBlock, Attention, MLP)),
    (gpt_model, "process_mtp_loss"),
    (transformer_block, "make_viewless_tensor"),
    (transformer_layer, "get_transformer_layer_offset"),
    (TransformerLayer, "_forward_attention"),
    (TransformerModelChunkSchedulePlan, "__init__"),
    (combined_1f1b, "combined_forward_backward_step"),
    (MultiTokenPredictionLayer, "_get_embeddings"),
    (TopKRouter, "routing"),
    (TopKRouter, "set_layer_number"),
    (LanguageModule, "compute_language_model_loss"),
    (CheckpointFunction, "backward"),
    (models, "GPTModel"),
)
