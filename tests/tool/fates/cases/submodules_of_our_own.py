"""Layers that may name an adapter beside Megatron's submodules."""

from dataclasses import dataclass, field, make_dataclass
from functools import partial

from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules


@dataclass
class _Adapter:
    adapter: type | None = None


def _like(cls):
    plain = cls()
    fields = [(name, object, field(default_factory=partial(getattr, plain, name))) for name in vars(plain)]
    return make_dataclass("AdaptedSubmodules", fields, bases=(_Adapter,))


def install():
    gpt_layer_specs.TransformerLayerSubmodules = _like(TransformerLayerSubmodules)
