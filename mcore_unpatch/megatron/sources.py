"""Where a Megatron comes from: a release that is known, the one that is installed, a folder, a wheel or a commit."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.sources import Files, light_model, read_source
from mcore_unpatch.megatron.versions import LIBRARY, ROOT, Version, parse_version

_INFO = "megatron/core/package_info.py"


@dataclass(frozen=True, slots=True)
class MegatronSource:
    """The files of a Megatron, and the release it says it is."""

    label: str
    files: Files
    folder: Path | None = None

    @property
    def version(self) -> Version:
        """Its minor version."""
        return parse_version(self.label)


def source_at(place: str | Path) -> MegatronSource:
    """A Megatron in a checkout, a wheel, a folder or `CLONE@COMMIT`; raises `UsageError`."""
    files = read_source(place, LIBRARY)
    return MegatronSource(label_of(files.get(_INFO, b""), place), files, Path(place) if Path(place).is_dir() else None)


def installed_model() -> Model | None:
    """The megatron-core that an import would find, for a few questions about names; read, not imported."""
    source = installed_source()
    return light_model(LIBRARY, source.label, source.files) if source is not None else None


def installed_source() -> MegatronSource | None:
    """The megatron-core that an import would find."""
    try:
        spec = importlib.util.find_spec(ROOT)
    except ImportError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return source_at(Path(places[0]).parents[1]) if places else None


def label_of(info: bytes, place: str | Path = "this Megatron") -> str:
    """The version that `package_info.py` says, which is read and not run; raises `UsageError`."""
    values: dict[str, object] = {}
    try:
        tree = ast.parse(info)
    except (SyntaxError, ValueError):
        tree = ast.Module([], [])
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=value)):
                values[name] = value
    numbers = [values.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
    if any(not isinstance(number, int) for number in numbers):
        raise UsageError(f"{_INFO} of {place} does not name a release; pass a complete checkout or wheel.")
    return ".".join(map(str, numbers))
