"""Where a Megatron comes from: a release that is known, the one that is installed, a folder, a wheel or a commit."""

from __future__ import annotations

import ast
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.lazy import light_model
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.sources import Files, model_of, read_source
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.roots import LIBRARY, ROOT
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version

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
    return MegatronSource(_label(files, place), files, Path(place) if Path(place).is_dir() else None)


def model_at(place: str | Path) -> Model:
    """The model of that; raises `UsageError`."""
    source = source_at(place)
    return model_of(LIBRARY, source.label, source.files)


def known_model(text: str) -> Model:
    """A release by its number: `0.19` is the newest 0.19. One that is newer than the known ones may be installed.

    Raises `UsageError` if it is neither.
    """
    try:
        version = parse_version(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    plain = text.strip().removeprefix("v")
    fitting = [release for release in RELEASES if release == plain]
    if text.count(".") == 1:
        fitting = [release for release in RELEASES if parse_version(release) == version]
    if fitting:
        return known.model(fitting[-1])
    source = _installed()
    if source is not None and f"{source.label}.".startswith(f"{plain}."):
        return model_of(LIBRARY, source.label, source.files)
    raise UsageError(
        f"This version of unpatch knows megatron-core {RELEASES[0]} to {RELEASES[-1]}, not {text}; pass its source "
        "with --mcore PATH (a checkout, a wheel, a folder, or CLONE@COMMIT)."
    )


def installed_model() -> Model | None:
    """The megatron-core that an import would find, for a few questions about names; read, not imported."""
    source = _installed()
    return light_model(LIBRARY, source.label, source.files) if source is not None else None


def _installed() -> MegatronSource | None:
    try:
        spec = importlib.util.find_spec(ROOT)
    except ImportError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return source_at(Path(places[0]).parents[1]) if places else None


def _label(files: Files, place: str | Path) -> str:
    """The version that `package_info.py` says, which is read and not run."""
    values: dict[str, object] = {}
    try:
        tree = ast.parse(files.get(_INFO, b""))
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
