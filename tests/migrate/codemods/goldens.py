"""The golden files, and what becomes of each: migrated once for all tests that look at it.

The first line of a file may say `# golden: path=... unsafe select=MCU7 target=0.19`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from planning import migrate

from mcore_unpatch.editing.edits import Options
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.megatron.versions import parse_version

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(path.relative_to(GOLDEN).as_posix().removesuffix(".in.py") for path in GOLDEN.rglob("*.in.py"))


def directives(data: bytes) -> tuple[str, Options]:
    """The path and the options that a golden file asks for."""
    head = data.partition(b"\n")[0].decode()
    words = head.removeprefix("# golden:").split() if head.startswith("# golden:") else []
    values = dict(word.partition("=")[::2] for word in words)
    selection = Selection((values["select"],)) if "select" in values else Selection()
    options = Options("unsafe" in values, selection)
    if "target" in values:
        options = replace(options, target=parse_version(values["target"]))
    return values.get("path", "pkg/module.py"), options


@cache
def migrated_golden(case: str) -> tuple[bytes, bytes]:
    """A golden file before and after; `migrate` has seen to it that a second run changes nothing."""
    before = (GOLDEN / f"{case}.in.py").read_bytes()
    path, options = directives(before)
    return before, migrate({path: before}, options).files[path]
