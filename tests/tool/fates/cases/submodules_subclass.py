"""Layers that may name an adapter: a subclass of Megatron's submodules."""

from dataclasses import dataclass

from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.transformer.transformer_layer import TransformerLayerSubmodules


@dataclass
class AdaptedSubmodules(TransformerLayerSubmodules):
    adapter: type | None = None


gpt_layer_specs.TransformerLayerSubmodules = AdaptedSubmodules
