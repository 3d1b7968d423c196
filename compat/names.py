"""The names that a GPTModel has for the parameters of a HybridModel, which converters to Hugging Face know."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from torch.nn import Module

from mcore_unpatch.compat.hook.find import find_language_model

# A layer of a HybridModel is half a layer of a GPTModel: attention, or what follows it.
_HALVES: Mapping[str, int] = MappingProxyType(
    {"input_layernorm": 0, "self_attention": 0, "pre_mlp_layernorm": 1, "mlp": 1}
)


def gpt_parameter_names(model: Module) -> dict[str, str]:
    """Of every name in the state of the HybridModel in `model`, the name of the same in a GPTModel of its layers.

    Its layers must be attention and MLP (or MoE) by turns, `*-` or `*E`. Of a pipeline stage, as of a GPTModel's, the
    layers count from 0.
    """
    return {name: _gpt_name(name) for name in find_language_model(model).model.state_dict()}


def _gpt_name(name: str) -> str:
    def whole(half: re.Match[str]) -> str:
        layers, number, part = half[1], int(half[2]), half[3]
        if _HALVES.get(part) != number % 2:
            raise ValueError(f"{name}: a GPTModel has no such layer; only `*-` and `*E`, by turns, have names there.")
        return f"{layers}{number // 2}.{part}"

    name = name.replace("decoder.final_norm.", "decoder.final_layernorm.")
    name = re.sub(r"^(decoder\.layers\.)(\d+)\.(\w+)", whole, name)
    return re.sub(r"(\.mtp_model_layer\.)layers\.\d+\.", r"\1", name)
