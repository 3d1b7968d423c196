"""The installed files of Megatron Core, held to the RECORD of the wheel that they came from."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from mcore_unpatch.audit.origin import Origin
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
    files = distribution.files if distribution is not None else None
    if distribution is None or not files:
        return [], ["megatron-core was not installed from a wheel, so its files cannot be compared with one."]
    seen = []
    top = Path(str(distribution.locate_file(""))).resolve()
    written = {str(file) for file in files}
    for file in files:
        if file.hash is None or file.hash.mode != "sha256" or file.suffix in (".pyc",) or ".dist-info" in str(file):
            continue
        if not str(file).startswith("megatron/"):
            continue
        try:
            digest = hashlib.sha256((top / str(file)).read_bytes()).digest()
        except OSError:
            seen.append(_file(file.name, top / str(file), "is missing, though the wheel has it"))
            continue
        if urlsafe_b64encode(digest).rstrip(b"=").decode() != file.hash.value:
            seen.append(_file(str(file), top / str(file), "differs from the wheel"))
    for path in sorted((top / "megatron" / "core").rglob("*.py")):
        name = path.relative_to(top).as_posix()
        if name not in written:
            seen.append(_file(name, path, "is not in the wheel"))
    return seen, []


def _file(name: str, path: Path, said: str) -> Deviation:
    return Deviation("file", name, Origin(said, str(path)))
