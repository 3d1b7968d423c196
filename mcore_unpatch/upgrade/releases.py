"""A release of Megatron Core to compare with: one that is known, or one read from source."""

from __future__ import annotations

import importlib.util
import tempfile
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cached_property
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron import history, lookup
from mcore_unpatch.megatron.definitions import STATEMENT_BYTES, Definition, Snapshot, SourceNames
from mcore_unpatch.megatron.lookup import Found
from mcore_unpatch.megatron.versions import Version, parse_version
from mcore_unpatch.scanner.shapes.patch_files import Source

_ALIKE = 0.5


@dataclass(frozen=True)
class Release:
    """What one release defines. `source` is the folder that holds `megatron/core`, where it is at hand."""

    label: str
    version: Version
    names: Snapshot = field(repr=False)
    source: Path | None = None

    def find(self, name: str) -> Found | None:
        """The definition behind a dotted name; None where this release has no such name."""
        return lookup.find(self.names, name)

    @property
    def for_patch_files(self) -> Source | None:
        """The source that patch files apply to or not."""
        return Source(self.source, self.label) if self.source is not None else None

    @cached_property
    def _by_tail(self) -> dict[str, list[str]]:
        tails: dict[str, list[str]] = {}
        for name, definition in self.names.items():
            if definition.kind in ("function", "class"):
                tails.setdefault(name.rpartition(".")[2], []).append(name)
        return tails

    def moved(self, name: str, before: Definition) -> str | None:
        """Where a name that is gone lives now: the same name elsewhere, or much the same body beside it."""
        owner, _, leaf = name.rpartition(".")
        is_method = owner.rpartition(".")[2][:1].isupper()
        tail = ".".join(name.split(".")[-2 if is_method else -1 :])
        same_name = [other for other in self._by_tail.get(leaf, []) if other.endswith(f".{tail}")]
        same_kind = [other for other in same_name if self.names[other].kind == before.kind]
        if len(same_kind) == 1:
            return same_kind[0]
        beside = [
            other
            for other, definition in self.names.items()
            if other.rpartition(".")[0] == owner and definition.kind == before.kind == "function"
        ]
        candidates = same_kind or beside
        scored = [(likeness(before.statements, self.names[other].statements), other) for other in candidates]
        score, best = max(scored, default=(0.0, ""))
        return best if score >= _ALIKE else None


def likeness(left: bytes, right: bytes) -> float:
    """How much two functions have in common, by the digests of their statements: 0 nothing, 1 everything."""
    return SequenceMatcher(None, statements(left), statements(right), autojunk=False).ratio()


def statements(digests: bytes) -> list[bytes]:
    """The digests of a function's statements, one by one."""
    return [digests[place : place + STATEMENT_BYTES] for place in range(0, len(digests), STATEMENT_BYTES)]


def known_release(text: str) -> Release:
    """A release by its number: `0.19` is the newest 0.19. One that is newer than the known ones may be installed.

    Raises `UsageError` if it is neither.
    """
    known = history.releases()
    try:
        version = parse_version(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    fitting = [release for release in known if release == text.strip().removeprefix("v")]
    if text.count(".") == 1:
        fitting = [release for release in known if parse_version(release) == version]
    if not fitting and (found := installed_release()) and f"{found.label}.".startswith(f"{text.removeprefix('v')}."):
        return found
    if not fitting:
        raise UsageError(
            f"This version of unpatch knows megatron-core {known[0]} to {known[-1]}, not {text}; pass its source with "
            "--mcore PATH (a checkout, a wheel or a folder)."
        )
    return Release(fitting[-1], version, history.snapshot(fitting[-1]))


def installed_release() -> Release | None:
    """The megatron-core that an import would find, if there is one; read, not imported."""
    try:
        spec = importlib.util.find_spec("megatron.core")
    except ImportError:
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return release_at(Path(places[0]).parents[1], ExitStack()) if places else None


def release_at(path: Path, keep: ExitStack) -> Release:
    """A release read from a checkout, an unpacked or packed wheel, or the folder that holds `megatron/core`."""
    if path.suffix == ".whl":
        path = _unpacked(path, keep)
    for folder in (path, path.parent, path.parent.parent):
        if (folder / "megatron" / "core").is_dir():
            break
    else:
        raise UsageError(
            f"{path} contains no megatron/core; pass a checkout of Megatron-LM, a wheel or an unpacked wheel."
        )
    version = _version_of(folder)
    return Release(version, parse_version(version), SourceNames(folder), folder)


def _unpacked(wheel: Path, keep: ExitStack) -> Path:
    folder = Path(keep.enter_context(tempfile.TemporaryDirectory(prefix="unpatch-")))
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith("megatron/") and name.endswith(".py")]
            archive.extractall(folder, names)  # ZipFile keeps members below the folder, whatever they are called
    except (OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{wheel} cannot be read as a wheel: {error}") from None
    return folder


def _version_of(folder: Path) -> str:
    """The version that `package_info.py` says, which is read and not run."""
    import ast

    values: dict[str, object] = {}
    try:
        tree = ast.parse((folder / "megatron" / "core" / "package_info.py").read_bytes())
    except (OSError, SyntaxError, ValueError):
        tree = ast.Module([], [])
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.targets[0], ast.Name)
        ):
            values[node.targets[0].id] = node.value.value
    numbers = [values.get(name) for name in ("MAJOR", "MINOR", "PATCH")]
    if any(not isinstance(number, int) for number in numbers):
        raise UsageError(
            f"{folder}/megatron/core/package_info.py does not name a release; pass a complete checkout or wheel."
        )
    return ".".join(map(str, numbers))
