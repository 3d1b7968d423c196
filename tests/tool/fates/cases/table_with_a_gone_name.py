"""Replacements by module and name; what stood there before is not asked for."""

import importlib

recorded = []


def record(name, loss, layer_number, num_layers, **kwargs):
    recorded.append((name, layer_number))


REPLACED = [
    ("megatron.core.transformer.moe.router", "save_to_aux_losses_tracker", record),
]


def install():
    for module, name, replacement in REPLACED:
        setattr(importlib.import_module(module), name, replacement)
