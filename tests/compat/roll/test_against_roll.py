"""Against ROLL's own code, from a checkout: its Megatron strategy's methods, around its functions and around ours."""

import ast
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from downstream.checkouts import ROLL, checkouts, loaded
from downstream.micro_batches import trained_on, wrapped_model
from harness import on_ranks
from harness.models import Case, batch_of
from harness.rounding import assert_agree
from megatron.core import mpu, tensor_parallel
from megatron.core.tensor_parallel import cross_entropy
from torch import Tensor

from mcore_unpatch.compat import DeferredHead, attach, roll, zigzag_split

IGNORE_INDEX = -100
STRATEGY = "roll/distributed/strategy/megatron_strategy.py"
LOGGER = {"get_logger": lambda name=None: logging.getLogger(name)}  # ROLL's own opens files
NAMES = ("vocab_parallel_logprobs", "vocab_parallel_entropy", "vocab_parallel_cross_entropy")


def _methods(checkout: str) -> list[ast.FunctionDef]:
    """The strategy's methods that read logits; its module imports ray and more, and so only their text is taken."""
    tree = ast.parse(Path(checkout, STRATEGY).read_text())
    owner = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "MegatronInferStrategy")
    return [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name.startswith("op_compute")]


@contextmanager
def strategies(checkout: str, case: Case) -> Iterator[tuple[Any, Any]]:
    """ROLL's methods with ROLL's functions in their globals, and with ours."""
    source = str(Path(checkout, "mcore_adapter", "src"))
    adapter = "mcore_adapter.parallel_functions"
    utils = {"mcore_adapter.utils": {**LOGGER, "divide": None}}
    with (
        loaded(source, "mcore_adapter", f"{adapter}.vocab_parallel", utils) as logprobs,
        loaded(
            checkout, "roll", "roll.third_party.megatron.tensor_parallel", {"roll.utils.logging": LOGGER}
        ) as entropy,
    ):
        from mcore_adapter.parallel_functions.context_parallel import (  # type: ignore[import-not-found]
            context_parallel_gather,
        )

        theirs = [getattr(m, n) for m, n in zip((logprobs, entropy, cross_entropy), NAMES, strict=True)]
        both = []
        for functions in (theirs, [getattr(roll, name) for name in NAMES]):
            scope: dict[str, Any] = {
                "torch": torch,
                "dist": torch.distributed,
                "mpu": mpu,
                "IGNORE_INDEX": IGNORE_INDEX,
                "context_parallel_gather": context_parallel_gather,
                "gather_from_tensor_model_parallel_region": tensor_parallel.gather_from_tensor_model_parallel_region,
                "reduce_from_tensor_model_parallel_region": tensor_parallel.reduce_from_tensor_model_parallel_region,
                **dict(zip(NAMES, functions, strict=True)),
            }
            tree = ast.Module(body=list(_methods(checkout)), type_ignores=[])
            exec(compile(tree, STRATEGY, "exec"), scope)
            both.append(_Strategy(case, scope))
        # What a rewrite makes of the bodies of these two.
        both[1].op_compute_topk_logits = roll.op_compute_topk_logits
        both[1].op_compute_gather_by_teacher_indices = roll.op_compute_gather_by_teacher_indices
        yield both[0], both[1]


class _Strategy:
    """Stands for ROLL's strategy: its methods, and the few things they ask of it."""

    def __init__(self, case: Case, scope: dict[str, Any]) -> None:
        self.case = case
        self.megatron_train_args = SimpleNamespace(cross_entropy_loss_fusion=False)
        self.worker_config = SimpleNamespace(logits_in_fp32=True)
        for name, function in scope.items():
            if name.startswith("op_compute"):
                setattr(self, name, function.__get__(self))

    def _get_feature_on_this_cp_rank(self, feature: Tensor, name: str) -> Tensor:
        """As Megatron splits a batch."""
        return zigzag_split(feature, self.case.cp, mpu.get_context_parallel_rank())


def _questions(tokens: Tensor, mask: Tensor, here: Tensor) -> dict[str, Any]:
    """What ROLL's workers ask of a strategy about one output of the model."""
    targets = tokens.masked_fill(mask == 0, IGNORE_INDEX)

    def forward_kl(logits: Tensor, teacher_probs: Tensor, teacher_log_probs: Tensor, teacher_inf_mask: Any) -> Tensor:
        return (teacher_probs * (teacher_log_probs - logits.log_softmax(-1))).sum(-1)

    def divergence(strategy: Any, output: Any) -> list[Tensor]:
        values, ids = strategy.op_compute_topk_logits(output.detach() / 0.9, 4)
        teacher = values.flip(-1).log_softmax(-1)
        rest = (teacher.exp(), teacher, ids, None, targets)
        return [strategy.op_compute_various_divergence(forward_kl, output, *rest, reduction="none")[0], values, ids]

    def loss(strategy: Any, output: Any, reduction: str) -> list[Tensor]:
        return list(strategy.op_compute_language_loss_from_logits(output, targets, reduction))

    return {
        "log-probs": lambda strategy, output: [strategy.op_compute_log_probs(output, tokens, mask)],
        "entropy": lambda strategy, output: [strategy.op_compute_entropy(output, mask)],
        "mean loss": lambda strategy, output: loss(strategy, output, "mean"),
        "sum of losses": lambda strategy, output: loss(strategy, output, "sum"),
        "top k": lambda strategy, output: list(strategy.op_compute_topk_logits(output, 4)),
        "divergence": divergence,
        "at one id": lambda strategy, output: [strategy.op_compute_gather_by_teacher_indices(output, here)],
    }


CASES = [
    Case(),
    Case(tp=2),
    Case(tp=2, sequence_parallel=True),
    Case(cp=2),
    Case(cp=2, tp=2),
    Case(dtype=torch.bfloat16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("checkout", checkouts(ROLL))
@on_ranks
def test_the_strategys_methods(case: Case, checkout: str) -> None:
    torch._dynamo.config.disable = True  # ROLL compiles a product, which needs a compiler
    whole = batch_of(case)
    share = {name: zigzag_split(value, case.cp, mpu.get_context_parallel_rank()) for name, value in whole.items()}
    call = {"input_ids": share["input_ids"], "position_ids": share["position_ids"], "attention_mask": None}
    model = wrapped_model(case)
    questions = _questions(whole["input_ids"], whole["loss_mask"].long(), share["input_ids"])

    def run(strategy: Any, question: Any) -> dict[str, Tensor]:
        output = model(**call)  # one for each question: their functions write to fp32 logits
        return trained_on(model, output, {"answer": question(strategy, output)})

    with strategies(checkout, case) as (theirs, ours):
        for name, question in questions.items():
            if case.dtype != torch.float32 and name in ("top k", "divergence"):
                continue  # 16-bit logits tie, and the order of equals is nobody's
            expected = run(theirs, question)
            with attach(model, DeferredHead()):
                assert_agree(run(ours, question), expected, case.dtype)
