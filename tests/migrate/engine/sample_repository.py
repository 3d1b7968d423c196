"""A small repository that patches Megatron Core, and a codemod as small that takes the patches out."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mcore_unpatch.editing.edits import Edit, Options, Plan, Remark, Repository
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.migrate.run import Request
from mcore_unpatch.survey.survey import ScanOptions

ACTOR = b"""from megatron.core.models.gpt import GPTModel

def forward(self, x: list[int]):
    return x

GPTModel.forward = forward  # [bold]kept[/bold]
"""
TRAINER = ACTOR.replace(b"\n", b"\r\n")
OTHER = b"print('nothing here')\n"
PYPROJECT = b'[project]\nname = "sample"\nversion = "1"\ndependencies = [\n    "numpy",\n    "torch",\n]\n'
FILES = {"rl/actor.py": ACTOR, "rl/deep/trainer.py": TRAINER, "other.py": OTHER, "pyproject.toml": PYPROJECT}
CHANGED = ("rl/actor.py", "rl/deep/trainer.py")
_PATCH = re.compile(rb"GPTModel\.forward = (\w+)")


class Sample:
    """The repository on disk."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in FILES:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
        self.reset()

    def reset(self) -> None:
        for name, data in FILES.items():
            (self.root / name).write_bytes(data)

    def commit(self) -> Sample:
        if not (self.root / ".git").exists():
            self.git("init", "-q")
        self.git("add", "-A")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "all", "--allow-empty")
        return self

    def git(self, *arguments: str) -> str:
        done = subprocess.run(["git", "-C", self.root, *arguments], check=True, capture_output=True, text=True)
        return done.stdout

    def status(self) -> list[str]:
        """What git sees as changed or new, ignored files included."""
        return self.git("status", "--porcelain", "--ignored", "--untracked-files=all").splitlines()

    def contents(self) -> dict[str, bytes]:
        return {name: (self.root / name).read_bytes() for name in FILES}

    def request(self, **options: bool) -> Request:
        return Request([self.root], ScanOptions(jobs=1), **options)


def migrated(data: bytes) -> bytes:
    return _PATCH.sub(rb"install(GPTModel, \1)", data)


MIGRATED = {name: migrated(data) for name, data in FILES.items()}


def planner(project: Repository, findings: Sequence[Finding], options: Options) -> Plan:
    """Every patch becomes a call; a repository without one has nothing to do."""
    edits = [
        Edit(path, "MCU601", "exact", match.start(), match.end(), b"install(GPTModel, %s)" % match[1], "calls the hook")
        for path in sorted(project.editable)
        for match in _PATCH.finditer(project.data(path))
    ]
    if not edits:
        return Plan()
    remarks = (Remark(edits[0].path, 3, "MCU101", "by-hand", "look at list[int]", "-[a]\n+[b]"),)
    removed = tuple(finding for finding in findings if finding.target.endswith("GPTModel.forward"))
    return Plan(tuple(edits), remarks, (), removed, "megatron-core>=0.18", "mcore-unpatch[compat]")
