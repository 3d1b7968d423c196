"""Which faults are tried: a seeded sample, the same number from every area of the product."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from tools.mutation.faults import Fault, faults_in
from tools.mutation.reach import REPOSITORY

_SHIMS = ("verl", "nemo_rl", "skyrl", "slime", "miles", "roll", "areal")

# Kernels are left out: they run on a GPU, or in an interpreter that takes minutes for each.
AREAS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]] = {
    # area: source folders; test folders; tests over samples that lie in files, whose words are not known: tried last
    "scanner": (
        ("mcore_unpatch/scanner", "mcore_unpatch/megatron"),
        ("tests/tool/scanner", "tests/tool"),
        (("tests/migrate/codemods/test_golden.py", "test_golden"),),
    ),
    "gate and reports": (
        tuple(
            f"mcore_unpatch/{part}"
            for part in (
                "*.py",
                "commands",
                "report",
                "upgrade",
                "repository",
                "findings",
                "survey",
                "gate",
                "judge",
                "stacks",
            )
        ),
        ("tests/tool",),
        (),
    ),
    "migrate": (("mcore_unpatch/migrate",), ("tests/migrate/engine", "tests/migrate"), ()),
    "codemods": (
        ("codemods",),
        ("tests/migrate/codemods", "tests/migrate", "tests/tool/plugins"),
        (("tests/migrate/codemods/test_golden.py", "test_golden"),),
    ),
    "operator": (("compat/fused_head",), ("tests/compat/fused_head", "tests/compat/triton"), ()),
    "hook and packing": (("compat/hook", "compat/packing"), ("tests/compat/hook", "tests/compat/packing"), ()),
    "shims": (
        ("compat/logits", "compat/*.py", *(f"compat/{name}" for name in _SHIMS)),
        tuple(f"tests/compat/{name}" for name in (*_SHIMS, "logits", "downstream")),
        (),
    ),
}


def sources(area: str) -> list[str]:
    """The Python files of an area, relative to the repository."""
    found: set[Path] = set()
    for pattern in AREAS[area][0]:
        found.update(REPOSITORY.glob(pattern if pattern.endswith(".py") else f"{pattern}/**/*.py"))
    return sorted(path.relative_to(REPOSITORY).as_posix() for path in found)


def area_of(path: str) -> str:
    """The area a source file belongs to."""
    return next(area for area in AREAS if path in sources(area))


def sample(area: str, size: int, seed: int) -> list[Fault]:
    """The faults of an area to try, the same for the same seed and the same source."""
    texts = {path: (REPOSITORY / path).read_bytes() for path in sources(area)}
    known = [fault for path, text in texts.items() for fault in faults_in(path, text)]
    random.Random(f"{seed} {area}").shuffle(known)
    sound = (fault for fault in known if fault.compiles(texts[fault.path]))
    return list(itertools.islice(sound, size))


def found_again(row: dict[str, Any]) -> Fault | None:
    """A fault of an earlier run in the source of now, by its text; None where that is gone."""
    path = row["path"]
    source = (REPOSITORY / path).read_bytes() if (REPOSITORY / path).exists() else b""
    same = [fault for fault in faults_in(path, source) if fault.shown == row["shown"]]
    return min(same, key=lambda fault: abs(fault.line - row["line"]), default=None)
