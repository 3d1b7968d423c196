"""The installed files of Megatron Core, held to the RECORD of the wheel that they came from."""

from __future__ import annotations

import csv
import hashlib
from base64 import urlsafe_b64encode
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from mcore_unpatch.audit.origin import CodeOrigin
from mcore_unpatch.audit.report import Deviation

DISTRIBUTION = "megatron-core"


def folder_in_use() -> Path | None:
    """The folder that holds the `megatron/core` which an import finds; nothing is imported."""
    try:
        spec = find_spec("megatron.core")
    except (ImportError, ValueError):
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]).resolve().parents[1] if places else None


def installed() -> metadata.Distribution | None:
    """The distribution whose files an import finds; None where they come from a checkout."""
    folder = folder_in_use()
    for distribution in metadata.distributions(name=DISTRIBUTION):
        if folder is not None and Path(str(distribution.locate_file(""))).resolve() == folder:
            return distribution
    return None


def changed_files() -> tuple[list[Deviation], list[str]]:
    """Files that are not those of the wheel, and notes where that cannot be told."""
    distribution = installed()
    record = distribution.read_text("RECORD") if distribution is not None else None
    if distribution is None or not record:
        return [], ["megatron-core was not installed from a wheel, so its files cannot be compared with one."]
    top = Path(str(distribution.locate_file(""))).resolve()
    written = {row[0]: row[1] for row in csv.reader(record.splitlines()) if row and row[0].startswith("megatron/")}
    seen = []
    for name, digest in written.items():
        try:
            own = hashlib.sha256((top / name).read_bytes()).digest() if digest.startswith("sha256=") else b""
            if own and urlsafe_b64encode(own).rstrip(b"=").decode() != digest.removeprefix("sha256="):
                seen.append(_file(name, top / name, "differs from the wheel"))
        except OSError:
            seen.append(_file(name, top / name, "is missing, though the wheel has it"))
    for path in sorted((top / "megatron" / "core").rglob("*.py")):
        name = path.relative_to(top).as_posix()
        if name not in written:
            seen.append(_file(name, path, "is not in the wheel"))
    return seen, []


def _file(name: str, path: Path, said: str) -> Deviation:
    return Deviation("file", name, CodeOrigin(said, str(path)))
