"""Released wheels, downloaded once by name and version and unpacked below `.cache/`; none of it is committed."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from limits import patience

CACHE = Path(__file__).resolve().parents[1] / ".cache"
_ATTEMPTS = 3
_LIMIT = 80  # seconds for each


def unpacked(name: str, version: str) -> Path:
    """The folder of an unpacked wheel.

    Where no download is possible the test is skipped and says so; with `CI` in the environment it fails instead.
    """
    folder = CACHE / "unpacked" / f"{name}-{version}"
    with _alone(f"{name}-{version}"):
        if not folder.exists():
            wheel = _download(name, version)
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(temporary)
                shutil.move(temporary, folder)
                Path(temporary).mkdir()  # for the context manager to remove
        if not (folder / ".git").exists():
            # A project of its own: else each scan of it would read the repository around this cache as well.
            subprocess.run(["git", "init", "--quiet", folder], check=True)
    return folder


def _download(name: str, version: str) -> Path:
    wheels = CACHE / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--dest",
        str(wheels),
        f"{name}=={version}",
    ]
    said = ""
    for attempt in range(_ATTEMPTS):
        if found := sorted(wheels.glob(pattern)):
            return found[0]
        time.sleep(2 * attempt)
        # A wheel that is not for this Python will do: most tests read its source. `make test` runs on one it is for.
        any_python = ["--python-version", "3.12"] if attempt else []
        try:
            said = subprocess.run(
                [*command, *any_python], capture_output=True, text=True, check=False, timeout=patience(_LIMIT)
            ).stderr.strip()
        except subprocess.TimeoutExpired:
            said = f"not done after {_LIMIT} s"
    if found := sorted(wheels.glob(pattern)):
        return found[0]
    reason = f"{name} {version} cannot be downloaded: {said[-300:]}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@contextmanager
def _alone(name: str) -> Iterator[None]:
    """One process at a time, so that parallel tests share a download."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f".{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
