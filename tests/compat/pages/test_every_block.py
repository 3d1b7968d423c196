"""Every Python block of the pages on compat is run by some test; here those of first pages, shims and examples."""

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
    for path in [*DOCS.glob("*.md"), *(DOCS / "how-to").glob("*.md"), *(DOCS / "concepts").glob("*.md")]
    if path.name not in ("gate.md", "audit.md")  # their blocks are lines to copy, and tests/tool/test_docs.py runs them
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
    found, level = from_page("how-to/migrate-verl.md", "next_token_results")(model, nested)
    assert_close(torch.stack(found.unbind())[:, :-1].detach(), log_probs)
    assert_close(torch.stack(level.unbind())[:, :-1].detach(), entropy)

    group = parallel_state.get_tensor_model_parallel_group()
    found = from_page("how-to/other-frameworks.md", "next_token_log_probs")(
        model, tokens, positions, group, backend="torch"
    )
    assert_close(found.detach(), log_probs)

    found, level = from_page("how-to/migrate-nemo-rl.md", "log_probs_and_entropy")(model, batch)
    assert_close(found.detach(), log_probs)
    assert_close(level.detach(), entropy)
    found = from_page("how-to/migrate-nemo-rl.md", "log_probs_by_flag")(lambda: build_model(case), batch)
    unpatch_gpt_model_forward_for_linear_ce_fusion()  # the rank stays for other tests
    assert_close(found.detach(), _next_token(build_model(case), batch, 1.0)[0])


@on_ranks
def test_the_loss_of_the_first_page(case: Case) -> None:
    batch: dict[str, Any] = {**batch_of(case), "attention_mask": None}
    model = build_model(case)
    log_p = (model(**{**batch, "labels": None}) / 0.7).log_softmax(-1).detach()
    old = log_p.gather(-1, batch["labels"][..., None]).squeeze(-1)
    advantages = torch.tensor([[1.0], [-2.0]])
    loss = from_page("get-started/log-probs.md", "policy_loss")(model, batch, old, advantages)
    entropy, mask = -(log_p.exp() * log_p).sum(-1), batch["loss_mask"]
    assert_close(loss.detach(), -((advantages + 0.01 * entropy) * mask).sum() / mask.sum())


def test_the_function_of_the_readme() -> None:
    hidden, weight, labels = torch.randn(2, 5, 8), torch.randn(30, 8), torch.randint(0, 30, (2, 5))
    log_probs, entropy = from_page("../README.md", "log_probs_and_entropy")(hidden, weight, labels)
    log_p = (hidden @ weight.t() / 0.7).log_softmax(-1)
    assert_close(log_probs, log_p.gather(-1, labels[..., None]).squeeze(-1))
    assert_close(entropy, -(log_p.exp() * log_p).sum(-1))


@pytest.mark.slow
def test_the_program_of_the_first_page_prints_what_stands_below_it() -> None:
    program = blocks_of("get-started/log-probs.md")[0]
    shown = re.findall(r"```text\n(.*?)```", (DOCS / "get-started" / "log-probs.md").read_text(), re.DOTALL)
    assert list(printed_in_forks(MEGATRON, [(program, {})])) == [block.rstrip("\n") for block in shown]


@pytest.mark.slow
def test_the_examples_run_without_a_gpu() -> None:
    programs = [((DOCS.parent / "examples" / name).read_text(), {}) for name in ("operator.py", "tiny_gpt.py")]
    operator, model = printed_in_forks(MEGATRON, programs)
    assert "held for backward" in operator
    assert "with a gradient: 29" in model
