"""veRL's kernel by our operator, against its formulas in float64; test_linear_cross_entropy_cuda.py has the kernel.

What is particular to veRL's: results are flat and float32, a label that is no token has the logit 0, a reduction is of
the log-probs alone, and with tensor parallelism the gradient of the hidden states is that of a rank's own shard.
"""

import ast
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from downstream.importing import printed_in_forks
from downstream.verl_formulas import call, formulas
from fused_head.oracle import grad_of, make_inputs
from harness import on_ranks
from harness.rounding import assert_agree
from torch import Tensor

pytest.importorskip("triton")  # without it the import raises, and the old kernel stays

from mcore_unpatch.compat.verl.linear_cross_entropy import linear_cross_entropy

VOCAB, WIDTH = 50, 16


def tensors(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    inputs = make_inputs((3, 7), WIDTH, VOCAB, dtype)
    labels = inputs.labels.clone()
    labels[0, :3] = torch.tensor([-100, VOCAB, -1])  # those have no column
    return inputs.hidden, inputs.weight, labels


def compare(found: dict[str, Tensor], truth: dict[str, Tensor], dtype: torch.dtype) -> None:
    for name, value in truth.items():
        assert_agree({name: found[name]}, {name: value}, dtype if name.endswith("grad") else torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean", "MEAN"])
def test_values_and_gradients_are_those_of_the_formulas(dtype: torch.dtype, reduction: str) -> None:
    hidden, weight, labels = tensors(dtype)
    found = call(linear_cross_entropy, hidden, weight, labels, 0.7, reduction)
    truth = call(formulas, hidden.double(), weight.double(), labels, 0.7, reduction.lower())
    compare(found, truth, dtype)
    assert found["logprobs"].dtype == found["entropy"].dtype == torch.float32
    assert found["hidden.grad"].dtype == found["weight.grad"].dtype == dtype
    assert found["entropy"].shape == (21,)
    assert found["logprobs"].shape == ((21,) if reduction == "none" else ())


def test_a_number_per_token_is_a_temperature_too() -> None:
    hidden, weight, labels = tensors(torch.float32)
    temperature = torch.linspace(0.5, 2, labels.numel()).view(labels.shape)
    found = call(linear_cross_entropy, hidden, weight, labels, temperature)
    truth = call(formulas, hidden.double(), weight.double(), labels, temperature.double().reshape(-1, 1))
    compare(found, truth, torch.float32)


def test_an_entropy_that_nobody_uses_and_no_gradient() -> None:
    hidden, weight, labels = tensors(torch.float32)
    with torch.no_grad():
        log_probs, entropy = linear_cross_entropy(hidden, weight, labels)
    assert not log_probs.requires_grad and not entropy.requires_grad
    hidden.requires_grad_()
    linear_cross_entropy(hidden, weight, labels)[0].sum().backward()
    leaf = hidden.detach().double().requires_grad_()
    formulas(leaf, weight.double(), labels)[0].sum().backward()
    compare({"hidden.grad": grad_of(hidden)}, {"hidden.grad": grad_of(leaf)}, torch.float32)


def test_errors_name_the_argument() -> None:
    hidden, weight, labels = tensors(torch.float32)
    with pytest.raises(ValueError, match="reduction: expected 'none', 'sum' or 'mean', got 'max'"):
        linear_cross_entropy(hidden, weight, labels, 1.0, "max")
    with pytest.raises(ValueError, match="temperature: expected a finite number above 0, got 0"):
        linear_cross_entropy(hidden, weight, labels, 0.0)


@on_ranks(2, release="0.19.2")
def test_a_rank_has_all_results_and_its_own_shards_gradients() -> None:
    hidden, weight, labels = tensors(torch.float32)
    rank = dist.get_rank()
    shard = weight.chunk(2)[rank]
    for reduction in ("none", "sum", "mean"):
        found = call(linear_cross_entropy, hidden, shard, labels, 0.7, reduction, dist.group.WORLD)

        def whole(x: Tensor, w: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
            """`x` counts in this rank's columns alone: its gradient there is the shard's part."""
            everyone = [(x if part == rank else x.detach()).reshape(-1, WIDTH) for part in range(2)]
            logits = torch.cat([own @ part.t() for own, part in zip(everyone, w.chunk(2), strict=True)], 1)
            return formulas(logits, torch.eye(VOCAB, dtype=torch.float64), *args)

        truth = call(whole, hidden.double(), weight.double(), labels, 0.7, reduction)
        truth["weight.grad"] = truth["weight.grad"].chunk(2)[rank]
        compare(found, truth, torch.float32)


def test_the_arguments_are_verls(verl_091: str) -> None:
    source = Path(verl_091, "verl/utils/kernel/linear_cross_entropy.py").read_text()
    (theirs,) = (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == "forward")
    names = [argument.arg for argument in theirs.args.args[1:]]
    ours = [p for p in signature(linear_cross_entropy).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [parameter.name for parameter in ours] == names
    assert [p.default for p in ours[-3:]] == [ast.literal_eval(default) for default in theirs.args.defaults]


MODULE = "mcore_unpatch.compat.verl.linear_cross_entropy"
GUARDED = f"""
try:
    from {MODULE} import linear_cross_entropy
except ImportError as error:
    print(error)
else:
    import sys, torch
    linear_cross_entropy(torch.ones(2, 8), torch.ones(4, 8), torch.tensor([0, 3]))
    print("ours", *(name for name in ("megatron", "verl", "typer", "rich", "libcst") if sys.modules.get(name)))
"""


@pytest.mark.ranks
def test_it_needs_no_megatron_and_a_guarded_import_falls_back() -> None:
    said = printed_in_forks(
        "import torch, torch.distributed.tensor\n",
        [
            (f"import sys; sys.modules['megatron'] = None\n{GUARDED}", {}),
            (GUARDED, {"MCORE_UNPATCH_OFF": "skyrl,verl.linear"}),
            (f"import sys; sys.modules['torch'] = None\n{GUARDED}", {}),
            (GUARDED, {"MCORE_UNPATCH": "0"}),
            (GUARDED, {"MCORE_UNPATCH_OFF": "skyrl, verl.linear_cross_entropy"}),
            (f"import sys; sys.modules['triton'] = None\n{GUARDED}", {}),
            (f"import sys; sys.modules['triton.tools.tensor_descriptor'] = None\n{GUARDED}", {}),
            (
                f"import torch; addmm = torch.ops.aten.addmm; del type(addmm).__getattr__, addmm.dtype_out\n{GUARDED}",
                {},
            ),
        ],
    )
    without_megatron, others_off, no_torch, off, off_by_name, no_triton, old_triton, old_torch = said
    assert without_megatron == others_off == "ours"
    assert no_torch == f"{MODULE} needs torch, which is not installed; run `pip install 'mcore-unpatch[ops]'`."
    assert off.startswith(f"{MODULE} is switched off by MCORE_UNPATCH=0")
    by_name = "MCORE_UNPATCH_OFF=skyrl, verl.linear_cross_entropy"
    assert off_by_name.startswith(f"{MODULE} is switched off by {by_name} in the")
    slower = f"{MODULE} would be slower than what it replaces:"
    assert no_triton == f"{slower} triton is not installed; install triton 3.4 or newer."
    assert "this triton has no tensor descriptors" in old_triton
    assert f"torch {torch.__version__} cannot sum 16-bit products in float32" in old_torch
