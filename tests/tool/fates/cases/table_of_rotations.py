"""Which of our functions stands for which of Megatron's, as strings."""

import importlib

import torch

PATCHES = (("megatron.core.models.common.embeddings.rope_utils._rotate_half", "table_of_rotations.rotate_half"),)


def rotate_half(x, rotary_interleaved):
    if rotary_interleaved:
        raise NotImplementedError("our kernels do not interleave")
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def install():
    for target, own in PATCHES:
        module, name = target.rsplit(".", 1)
        source, function = own.rsplit(".", 1)
        setattr(importlib.import_module(module), name, getattr(importlib.import_module(source), function))
