"""A loss of power at any moment: what a step leans on is on the disk before the step, names of files included."""

import os
from pathlib import Path
from typing import Any

import pytest
from sample_repository import FILES, MIGRATED, Sample, planner

from mcore_unpatch.migrate.run import migrate
from mcore_unpatch.writing.journal import locate
from mcore_unpatch.writing.transaction import undo


class Disk:
    """Which names in folders the disk may not have yet: those made or changed since their folder was synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, state: Path, repository: Path) -> None:
        self.state, self.repository = state, repository
        self.unsure: set[Path] = set()
        self.steps: list[Path] = []
        self._mkdir, self._replace, self._fsync = os.mkdir, os.replace, os.fsync
        monkeypatch.setattr(os, "mkdir", self.mkdir)
        monkeypatch.setattr(os, "replace", self.replace)
        monkeypatch.setattr(os, "fsync", self.fsync)

    def mkdir(self, path: Any, *args: Any, **options: Any) -> None:
        self._mkdir(path, *args, **options)
        self.unsure.add(Path(path))

    def fsync(self, handle: int) -> None:
        path = Path(f"/proc/self/fd/{handle}").readlink()
        self._fsync(handle)
        if path.is_dir():
            self.unsure = {name for name in self.unsure if name.parent != path}
        else:
            self.unsure.add(path)

    def replace(self, source: Any, target: Any) -> None:
        source, target = Path(source), Path(target)
        leaning = {name for name in self.unsure if name.is_relative_to(self.state) and name not in (self.state, source)}
        if target.parent == self.state:  # the record says that files are as they should be
            leaning |= self.unsure & {self.repository / name for name in FILES}
        assert not leaning, f"{target} is replaced while the disk may not have {sorted(leaning)}"
        self._replace(source, target)
        self.unsure.discard(source)
        self.unsure.add(target)
        self.steps.append(target)

    def holds(self, folder: Path) -> bool:
        return not any(name.parent == folder for name in self.unsure if name.exists())


@pytest.fixture
def disk(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch, locate(sample.root).folder, sample.root)


def test_a_migration_and_its_undo(sample: Sample, disk: Disk) -> None:
    for step, contents in ((lambda: migrate(sample.request(), planner), MIGRATED), (lambda: undo(sample.root), FILES)):
        disk.steps.clear()
        step()
        assert sample.contents() == contents
        changed = [sample.root / name for name in FILES if FILES[name] != MIGRATED[name]]
        assert {path for path in disk.steps if path in changed} == set(changed)
        assert disk.steps[0].parent == disk.state  # that something is under way is known before any file changes
        assert disk.steps[-1].parent == disk.state
        assert disk.holds(disk.state)
        assert disk.holds(sample.root)
