"""Against AReaL's own functions, from its wheel or a checkout: the same values and gradients on the same models."""

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from downstream.checkouts import loaded
from downstream.micro_batches import RESPONSE, TOTAL, packed, trained_on, wrapped_model
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_agree
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import DeferredHead, areal, attach

MODULE = "areal.utils.functional.vocab_parallel"
# "On an NPU": there AReaL does not compile its functions, which needs a compiler.
STAND_INS = {"areal.infra.platforms": {"is_npu_available": True}}
TREE = "areal.models.tree_attn.functional"
TRACER = {"areal.utils.perf_tracer": {"trace_perf": lambda name: lambda function: function}}


def _unpad_logits(checkout: str) -> Any:
    """One function of a module that imports half the world."""
    tree = ast.parse(Path(checkout, "areal/utils/data.py").read_text())
    tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "unpad_logits"]
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(tree, "data.py", "exec"), scope)
    return scope["unpad_logits"]


CASES = [Case(), Case(tp=2), Case(tp=2, sequence_parallel=True), Case(cp=2), Case(dtype=torch.bfloat16)]


@pytest.mark.parametrize("case", CASES, ids=str)
@on_ranks
def test_as_the_megatron_engine_calls_them(case: Case, checkout: str) -> None:
    """As AReaL's Megatron engine goes on from the model's output: squeeze, unpad, log-probs, entropy, statistics."""
    batch, model = packed(case), wrapped_model(case)
    group = parallel_state.get_tensor_model_parallel_group() if case.tp > 1 else None
    bounds = batch.call["packed_seq_params"].cu_seqlens_q.long()
    kept = torch.tensor(TOTAL) - torch.tensor(RESPONSE) // 2 if case.cp == 1 else None
    old = None if kept is None else torch.nn.functional.pad(kept.cumsum(0), (1, 0))

    def run(functions: Any, unpad: Any) -> dict[str, Tensor]:
        output = model(**batch.call)
        logits = unpad(output.squeeze(0), 7 if case.cp == 1 else 0, bounds[:-1], old)
        labels = torch.arange(len(logits)) * 5 % case.vocab
        log_probs, entropy = functions.gather_logprobs_entropy(logits, labels, 0.7, tp_group=group, chunk_size=5)
        alone = functions.gather_logprobs(logits, labels, 1.3, tp_group=group, chunk_size=5)
        ends = unpad(log_probs, 2)
        zero = output.mean() * 0.0
        return trained_on(model, output, {"log_probs": [log_probs, alone, ends, zero], "entropy": [entropy]})

    stores = 3  # the gradient of the logits comes from two calls and a mean, which are added up as they are stored
    with loaded(checkout, "areal", MODULE, STAND_INS) as theirs:
        expected = run(theirs, _unpad_logits(checkout))
        # Real logits: AReaL's own functions.
        assert_agree(run(areal, areal.unpad_logits), expected, case.dtype, stores=stores)
        with attach(model, DeferredHead()):
            assert_agree(run(areal, areal.unpad_logits), expected, case.dtype, stores=stores)
            low, high = areal.get_vocab_min_max_logits(model(**batch.call).squeeze(0))
        real = model(**batch.call).squeeze(0).detach()
        parts = [torch.empty_like(real) for _ in range(case.tp)]
        torch.distributed.all_gather(parts, real, group=parallel_state.get_tensor_model_parallel_group())
        whole = torch.cat(parts, -1)
        stats = {"min": whole.min(-1).values, "max": whole.max(-1).values}
        assert_agree({"min": low, "max": high}, stats, case.dtype)


class _Trie:
    """Stands for AReaL's tree of two sequences with a common prefix: three nodes, by first and last token."""

    all_sequence_ids = (0, 1)

    def get_sequence_tree_indices(self, sequence: int) -> list[tuple[int, int]]:
        return [(0, 5), (6, 9)] if sequence == 0 else [(0, 5), (10, 15)]


@on_ranks(Case(batch=1))
def test_packed_trees(case: Case, checkout: str) -> None:
    """AReaL's own functions for packed trees, around its operators and around ours."""
    model = wrapped_model(case)
    tokens = torch.arange(16)[None] * 7 % case.vocab
    call = {"input_ids": tokens, "position_ids": torch.arange(16)[None], "attention_mask": None}

    def run(tree: Any) -> dict[str, Tensor]:
        output = model(**call)
        found = tree._gather_packed_tree_logprobs_entropy(output.squeeze(0), _Trie(), tokens[0], temperature=0.7)
        results = {str(number): list(part.values()) for number, part in enumerate(found)}
        return trained_on(model, output, results)

    with loaded(checkout, "areal", TREE, {**STAND_INS, **TRACER}) as tree:
        expected = run(tree)
        tree.gather_logprobs, tree.gather_logprobs_entropy = areal.gather_logprobs, areal.gather_logprobs_entropy
        with attach(model, DeferredHead()):
            assert_agree(run(tree), expected)
