"""Every Python block of the pages on compat is run by some test; those of the shims' pages, and the examples, here."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from downstream.importing import MEGATRON, printed_in_forks
from harness import on_ranks
from harness.files import DOCS, blocks_of, from_page
from harness.models import Case, batch_of, build_model
from harness.rounding import assert_close
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat.nemo_rl import unpatch_gpt_model_forward_for_linear_ce_fusion

PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in [*DOCS.glob("compat*.md"), *DOCS.glob("frameworks/*.md"), DOCS / "recipes.md"]
)
TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_a_function_that_a_test_runs(page: str) -> None:
    sources = [path.read_text() for path in TESTS.rglob("test_*.py")]
    for block in blocks_of(page):
        names = re.findall(r"^(?:def|class) (\w+)", block, re.MULTILINE)
        assert names, f"{page}: a block without a function, which no test can call:\n{block}"
        run = [name for name in names if any(page in text and re.search(rf'"{name}"', text) for text in sources)]
        assert run, f"{page}: no test runs {names}"


def _next_token(model: Any, batch: dict[str, Any], temperature: float) -> tuple[Tensor, Tensor]:
    log_p = (model(**batch) / temperature).log_softmax(-1)[:, :-1].detach()
    log_probs = log_p.gather(-1, batch["input_ids"][:, 1:, None]).squeeze(-1)
    return log_probs, -(log_p.exp() * log_p).sum(-1)


@on_ranks
def test_the_pages_of_the_shims(case: Case) -> None:
    batch: dict[str, Any] = {**batch_of(case), "attention_mask": None}
    del batch["labels"], batch["loss_mask"]
    tokens, positions = batch["input_ids"], batch["position_ids"]
    model = build_model(case)
    log_probs, entropy = _next_token(model, batch, 0.7)

    nested = torch.nested.as_nested_tensor(list(tokens), layout=torch.jagged)
    found, level = from_page("frameworks/verl.md", "next_token_results")(model, nested)
    assert_close(torch.stack(found.unbind())[:, :-1].detach(), log_probs)
    assert_close(torch.stack(level.unbind())[:, :-1].detach(), entropy)

    group = parallel_state.get_tensor_model_parallel_group()
    found = from_page("frameworks/skyrl.md", "next_token_log_probs")(model, tokens, positions, group, backend="torch")
    assert_close(found.detach(), log_probs)

    found, level = from_page("frameworks/nemo-rl.md", "log_probs_and_entropy")(model, batch)
    assert_close(found.detach(), log_probs)
    assert_close(level.detach(), entropy)
    found = from_page("frameworks/nemo-rl.md", "log_probs_by_flag")(lambda: build_model(case), batch)
    unpatch_gpt_model_forward_for_linear_ce_fusion()  # the rank stays for other tests
    assert_close(found.detach(), _next_token(build_model(case), batch, 1.0)[0])


@pytest.mark.slow
def test_the_examples_run_without_a_gpu() -> None:
    programs = [((DOCS.parent / "examples" / name).read_text(), {}) for name in ("operator.py", "tiny_gpt.py")]
    operator, model = printed_in_forks(MEGATRON, programs)
    assert "held for backward" in operator
    assert "with a gradient: 29" in model
