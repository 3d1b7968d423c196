"""`remaining` and the line "Left" are what a scan finds afterwards, no more and no less."""

import json
from pathlib import Path
from typing import Any

import pytest
from sample_repository import ACTOR, Sample
from sample_unpatch import unpatch

FILES = {
    "rl/actor.py": ACTOR,  # migrated by the codemod of the sample
    "docker/megatron.patch": b"--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -1 +1 @@\n-a\n+b\n",
    "ext/megatron/core/own.py": b"import megatron.core.utils as u\nu.get_model_config = print\n",
    "rl/twice.py": b"import megatron.core.utils as u\n"
    b"def a():\n    u.get_model_config = print\ndef b():\n    u.get_model_config = print\n",
    "rl/idle.py": b"x = 1  # unpatch: ignore[MCU101]\n",
    "rl/known.py": b"import megatron.core.utils as u\nu.get_model_config = print  # unpatch: ignore\n",
}
EXPECTED = [
    ("docker/megatron.patch", 3, "MCU608"),
    ("ext/megatron/core/own.py", 2, "MCU602"),
    ("rl/idle.py", 1, "MCU001"),
    ("rl/twice.py", 3, "MCU602"),
    ("rl/twice.py", 5, "MCU602"),
]


@pytest.fixture
def folder(sample: Sample) -> Path:
    (sample.root / "rl/deep/trainer.py").unlink()
    for name, data in FILES.items():
        (sample.root / name).parent.mkdir(parents=True, exist_ok=True)
        (sample.root / name).write_bytes(data)
    sample.commit()
    return sample.root


def told(folder: Path, *arguments: str) -> str:
    done = unpatch(folder, *arguments)
    assert done.code == 0, done.err
    return done.out.decode()


def places(findings: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    return sorted((finding["path"], finding["line"], finding["rule"]) for finding in findings)


def test_what_a_scan_finds_afterwards(folder: Path) -> None:
    done = json.loads(told(folder, "migrate", "--output-format", "json"))
    scan = json.loads(told(folder, "scan", "--output-format", "json"))
    assert [one["path"] for one in done["files"]] == ["rl/actor.py"]
    assert places(done["remaining"]) == places(scan["findings"]) == EXPECTED


def test_nothing_rewritten(folder: Path, sample: Sample) -> None:
    (folder / "rl/actor.py").unlink()
    sample.commit()
    done = json.loads(told(folder, "migrate", "--output-format", "json"))
    assert places(done["remaining"]) == EXPECTED


def test_the_table_counts_each(folder: Path) -> None:
    """One screen: what `scan` lists, as its numbers."""
    left = told(folder, "migrate").partition("\nLeft ")[2].partition("\nReview")[0]
    assert (
        " ".join(left.split()) == "3 in code (3 kept); 1 in patch files (1 kept); 1 besides (1 to delete): unpatch scan"
    )
