"""Golden pairs: `x.in.py` becomes `x.out.py`; without an `out` it stays as it is."""

from __future__ import annotations

import ast

import pytest
from goldens import CASES, GOLDEN, migrated_golden

# Those that stay as they are come first: a rewrite that does too much is worse than one that does too little.
ORDERED = sorted(CASES, key=lambda case: (GOLDEN / f"{case}.out.py").exists())


@pytest.mark.parametrize("case", ORDERED)
def test_golden(case: str) -> None:
    before, after = migrated_golden(case)  # it has been tried a second time, which changed nothing
    out = GOLDEN / f"{case}.out.py"
    expected = out.read_bytes() if out.exists() else before
    ast.parse(expected)
    assert after.decode() == expected.decode()


def test_every_out_has_an_in() -> None:
    assert {path.name.removesuffix(".out.py") for path in GOLDEN.rglob("*.out.py")} <= {
        case.rpartition("/")[2] for case in CASES
    }
