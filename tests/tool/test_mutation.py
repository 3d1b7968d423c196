"""Which faults `make mutation` puts into code, and which it leaves out: nothing changes that a test could see."""

import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("x = a < b", ["(a <= b)"]),
        ("x = a and b", ["(a or b)", "(a)", "(b)"]),
        ("x = not a", ["(a)"]),
        ("x = {1, 'b'}", ["({'b'})", "({1})", "2"]),
        ("x = a if b else c", ["(a)", "(c)"]),
        ("def f():\n    return a", ["return None"]),
        ("go(1)", ["pass", "2"]),
        ("x = f.go(a, key=b)", ["(f.go(a))"]),
        ("x.effort.spend(1 + a)", []),
        ("kept.move_to_end(path, last=True)", []),
        ("gc.freeze()", []),
        ("gauge.freeze()", ["pass"]),
        ("x = a.clone(memory_format=b)", []),
        ("x = a.to(b, non_blocking=True)", []),
        ("x = torch.zeros(a, device=b)", []),
        ("x = other.zeros(a, device=b)", ["(other.zeros(a))"]),
        ("log.info(a)", []),
        ("warnings.warn(a, stacklevel=2)", ["pass"]),
        ("_LARGEST = 5", []),
        ("_SHOWN = 5", ["6"]),
    ],
)
def test_the_faults_of_a_line(code: str, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[2])])
    from tools.mutation.faults import faults_in

    assert sorted(fault.text for fault in faults_in("x.py", code.encode())) == sorted(made)
