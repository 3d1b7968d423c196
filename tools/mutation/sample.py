"""Which faults are tried: a seeded sample, the same number from every area of the product."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from tools.mutation.faults import Fault, faults_in
from tools.mutation.reach import REPOSITORY

# Kernels are left out: they run on a GPU, or in an interpreter that takes minutes for each.
AREAS: dict[str, tuple[str, ...]] = {
    "scanner": ("mcore_unpatch/scanner",),
    "judge": tuple(f"mcore_unpatch/{part}" for part in ("judge", "library", "megatron", "stacks", "upgrade")),
    "gate and reports": tuple(
        f"mcore_unpatch/{part}" for part in ("*.py", "commands", "findings", "gate", "report", "repository", "survey")
    ),
    "audit and verify": ("mcore_unpatch/audit", "mcore_unpatch/verify"),
    "migrate": ("mcore_unpatch/editing", "mcore_unpatch/migrate"),
    "codemods": ("codemods",),
    "operator": ("compat/fused_head",),
    "hook and packing": ("compat/hook", "compat/packing"),
    "shims": ("compat/*.py", "compat/logits", "compat/verl"),
}


def sources(area: str) -> list[str]:
    """The Python files of an area, relative to the repository."""
    found: set[Path] = set()
    for pattern in AREAS[area]:
        found.update(REPOSITORY.glob(pattern if pattern.endswith(".py") else f"{pattern}/**/*.py"))
    return sorted(path.relative_to(REPOSITORY).as_posix() for path in found if path.parent.name != "triton")


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
