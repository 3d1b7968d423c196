"""Releases of veRL are migrated once, for all workers."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable
from functools import cache

import pytest
import releases
from planning import Result, migrate


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Result]:
    """A release of veRL after its migration."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    @cache
    def of_verl(release: str) -> Result:
        file = shared / f"verl-{release}.pickle"
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                file.write_bytes(pickle.dumps(migrate(releases.verl(release))))
        result: Result = pickle.loads(file.read_bytes())
        return result

    return of_verl
