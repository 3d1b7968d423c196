"""Log-probs, entropy and every gradient from the hook, against Megatron's default path, however the model is run."""

import pytest
import torch
from harness import run_on_ranks
from harness.faithful import is_faithful
from harness.models import Case

CASES = [
    Case(),
    Case(bias=True, tp=2),
    Case(mup=True, mtp=1),
    Case(recompute=True),
    Case(recompute="selective"),
    Case(mtp=1, tied=True),
    Case(dtype=torch.bfloat16),
    Case(dtype=torch.float16),
    Case(dtype=torch.bfloat16, head_dtype=torch.float32),
    Case(dtype=torch.float32, head_dtype=torch.bfloat16),
    Case(packed=True, mtp=1),
    Case(tp=2),
    Case(tp=2, tied=True, mtp=1, query_groups=2),
    Case(tp=2, sequence_parallel=True),
    Case(tp=2, sequence_parallel=True, tied=True, mtp=2, mup=True),
    Case(tp=2, sequence_parallel=True, packed=True),
    Case(tp=4, sequence_parallel=True, tied=True, recompute=True),
    Case(cp=2),
    Case(cp=2, mtp=1),
    Case(cp=2, packed=True, mtp=1),
    Case(tp=2, cp=2, sequence_parallel=True, packed=True),
    Case(dp=2),
    Case(hybrid=True, tied=True, mtp=1),
    Case(hybrid=True, mtp=2, mup=True),
    Case(hybrid=True, recompute=True, dtype=torch.bfloat16),
    Case(hybrid=True, recompute="selective"),
    Case(hybrid=True, tp=2, sequence_parallel=True, mtp=1),
    Case(hybrid=True, cp=2, packed=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_hook_gives_what_the_default_path_gives(release: str, case: Case) -> None:
    run_on_ranks(release, case.ranks, is_faithful, case)


def test_mtp_with_full_recompute_where_megatron_itself_can() -> None:
    """0.18.2 raises a TypeError of its own for this pair."""
    case = Case(mtp=1, recompute=True)
    run_on_ranks("0.19.2", case.ranks, is_faithful, case)
