"""Whether a replacement comes to what it replaced, and what a copy lacks: never told by how something is called."""

from pathlib import Path

import pytest
from checking import releases, write_files

from mcore_unpatch.survey.survey import ScanOptions
from mcore_unpatch.upgrade.run import upgrade

HEAD = """\
from types import MethodType
from typing import Any, cast
from elsewhere import Other, wrap
from megatron.core.transformer.mlp import MLP
from megatron.core.transformer.transformer_layer import TransformerLayer
"""
METHOD = """\
{helper}
def new(self, *args, **kwargs): return {read}
def install(layer: TransformerLayer):
    {keep}
    layer.forward = MethodType(new, layer)
"""
CALLS = "the replacement calls the original"
DOES_NOT = "the replacement does not call the original"


def reason(folder: Path, source: str) -> str:
    write_files(folder, HEAD + source)
    (fate,) = upgrade([folder], ScanOptions(jobs=1), *releases("0.15.0", "0.19.2")).fates
    return " ".join(fate.reasons)


@pytest.mark.parametrize(
    ("keep", "read"),
    [
        ("layer._old = layer.forward", "cast(Any, self._old)(*args, **kwargs)"),
        ("cast(Any, layer)._old = cast(Any, layer.forward)", "cast(Any, self)._old(*args, **kwargs)"),
        ("setattr(layer, '_old', layer.forward)", "getattr(self, '_old')(*args, **kwargs)"),
        ("layer.__dict__['_old'] = getattr(layer, 'forward')", "self._old(*args, **kwargs)"),
        ("layer._old = layer.forward", "helper(self, *args, **kwargs)"),
        ("layer._old = layer.forward", "further(self, *args, **kwargs)"),
    ],
)
def test_an_original_that_an_attribute_keeps(keep: str, read: str, tmp_path: Path) -> None:
    helper = "def helper(it, *args, **kwargs): return it._old(*args, **kwargs)\n"
    helper += "def further(it, *args, **kwargs): return helper(it, *args, **kwargs)"
    assert CALLS in reason(tmp_path, METHOD.format(helper=helper, keep=keep, read=read))


@pytest.mark.parametrize(
    ("keep", "read"),
    [
        ("layer._old = layer.other", "cast(Any, self._old)(*args, **kwargs)"),
        ("setattr(layer, '_old', layer.other)", "getattr(self, '_old')(*args, **kwargs)"),
        ("layer.table['_old'] = layer.forward", "self._old(*args, **kwargs)"),
        ("layer._old = layer.forward", "helper(self, *args, **kwargs)"),
    ],
)
def test_an_attribute_that_keeps_something_else(keep: str, read: str, tmp_path: Path) -> None:
    helper = "def helper(it, *args, **kwargs): return it._other(*args, **kwargs)"
    assert DOES_NOT in reason(tmp_path, METHOD.format(helper=helper, keep=keep, read=read))


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("def make(f): return 1", "whether it fits is not known"),
        ("def make(f): return wrap(f)", CALLS),
        ("make = wrap", CALLS),
    ],
)
def test_a_factory_that_does_not_use_the_original_does_not_call_it(factory: str, said: str, tmp_path: Path) -> None:
    source = f"{factory}\nTransformerLayer.forward = make(TransformerLayer.forward)\n"
    assert said in reason(tmp_path, source)


FROZEN = """
import torch
from megatron.core.tensor_parallel.layers import LinearWithFrozenWeight
def folded(grad_output, weight):
    if grad_output.dim() <= 2: return grad_output.matmul(weight)
    return grad_output.reshape(-1, grad_output.shape[-1]).matmul(weight).view(*grad_output.shape[:-1], -1)
def backward(ctx, grad_output):
    (weight,) = ctx.saved_tensors
    grad_input = {value}
    if ctx.allreduce_dgrad:
        torch.distributed.all_reduce(grad_input, group=ctx.tp_group)
    return grad_input, None, None, None, None
LinearWithFrozenWeight.backward = staticmethod(backward)
"""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("torch.matmul(grad_output, weight)", "that came after megatron-core 0.15.0"),
        ("folded(grad_output, weight)", "0.15.0, unless `folded`, which it calls, has them in other words"),
    ],
)
def test_what_a_copy_lacks_may_stand_in_a_function_that_it_calls(value: str, said: str, tmp_path: Path) -> None:
    assert reason(tmp_path, FROZEN.format(value=value)).endswith(said)
