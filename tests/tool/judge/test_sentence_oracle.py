"""The oracle of sentences, on releases small enough to know the truth."""

import json
from collections import Counter
from pathlib import Path

import pytest
from builders import load_builder
from checking import write_files

RELEASES = {
    "0.1.0/megatron/core/a.py": "def f(x): return x\ndef g(): f(1)\nclass A:\n    def run(self): g()\n",
    "0.2.0/megatron/core/a.py": "def f(x: int) -> int: return x\ndef g(): f(2)\nclass A:\n    def run(self): g()\n",
    "0.2.0/megatron/core/b.py": "from .a import *\nclass B(A):\n    def go(self): f(3)\n",
    "0.3.0/megatron/core/a.py": "def f(x): return -x\nclass A:\n    def run(self): f(1)\n",
    "0.3.0/megatron/core/b.py": "from .a import *\nclass B(A):\n    def go(self): f(3)\n",
}


@pytest.mark.parametrize(
    ("target", "evidence", "kind", "right"),
    [
        ("a.f", "Changed in 0.3; more", "history", True),
        ("a.f", "Unchanged since 0.1; more", "history", False),
        ("a.g", "Changed in 0.2, gone since 0.3; more", "history", True),
        ("b.B.run", "Changed in 0.3; more", "history", True),
        ("b.B.go", "Unchanged since it came in 0.2; more", "history", True),
        ("a.f", "`A` and another class or module call it by name, so no other can be passed there.", "callers", True),
        ("a.f", "`B` calls it by name, so no other can be passed there.", "callers", False),
        ("a.g", "`g` does not exist after megatron-core 0.2.0", "names", True),
        ("a.g", "`g` does not exist before megatron-core 0.2.0", "names", False),
    ],
)
def test_sentences_are_held_to_the_sources(
    tmp_path: Path, target: str, evidence: str, kind: str, right: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    oracle = load_builder("sentence_oracle")
    write_files(tmp_path / "sources", RELEASES)
    said = {"evidence": "" if kind == "names" else evidence, "message": evidence if kind == "names" else ""}
    finding = {"path": "p.py", "line": 3, "target": f"megatron.core.{target}", **said}
    report = tmp_path / "toy.json"
    report.write_text(json.dumps({"judged": [{"releases": ["0.3.0"]}], "findings": [finding]}))
    counts: Counter[tuple[str, bool]] = Counter()
    oracle.check(report, oracle.Oracle(tmp_path / "sources"), counts)
    assert counts == {(kind, right): 1}
    assert ("toy p.py:3 megatron.core." in capsys.readouterr().out) is not right
