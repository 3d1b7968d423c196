"""Patterns of hybrid models may hold spaces."""

from megatron.core.ssm import mamba_hybrid_layer_allocation

_parse = mamba_hybrid_layer_allocation.parse_hybrid_pattern


def parse_without_spaces(pattern):
    return _parse(pattern.replace("_", ""))


mamba_hybrid_layer_allocation.parse_hybrid_pattern = parse_without_spaces
