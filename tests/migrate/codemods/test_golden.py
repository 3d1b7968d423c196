"""Golden pairs: `x.in.py` becomes `x.out.py`; without an `out` it stays as it is.

The first line of a file may say `# golden: path=... unsafe annotate target=0.19`; see `composed` for `MEGATRON(...)`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from composed import composed
from planning import migrate

from mcore_unpatch.codemods.edits import Options
from mcore_unpatch.megatron.versions import parse_version

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.relative_to(GOLDEN).as_posix().removesuffix(".in.py") for path in GOLDEN.rglob("*.in.py"))
# Those that stay as they are come first: a rewrite that does too much is worse than one that does too little.
ORDERED = sorted(CASES, key=lambda case: (GOLDEN / f"{case}.out.py").exists())


def directives(data: bytes) -> tuple[str, Options]:
    """The path and the options that a golden file asks for."""
    head = data.partition(b"\n")[0].decode()
    words = head.removeprefix("# golden:").split() if head.startswith("# golden:") else []
    values = dict(word.partition("=")[::2] for word in words)
    options = Options(unsafe_fixes="unsafe" in values, annotate="annotate" in values)
    if "target" in values:
        options = Options(options.unsafe_fixes, options.annotate, target=parse_version(values["target"]))
    return values.get("path", "pkg/module.py"), options


@pytest.mark.parametrize("case", ORDERED)
def test_golden(case: str) -> None:
    before = composed((GOLDEN / f"{case}.in.py").read_bytes())
    out = GOLDEN / f"{case}.out.py"
    expected = out.read_bytes() if out.exists() else before
    ast.parse(expected)
    path, options = directives(before)
    result = migrate({path: before}, options)
    assert result.files[path].decode() == expected.decode()
    assert migrate({path: expected}, options).files[path] == expected


def test_every_out_has_an_in() -> None:
    assert {path.name.removesuffix(".out.py") for path in GOLDEN.rglob("*.out.py")} <= {
        case.rpartition("/")[2] for case in CASES
    }
