"""Any way to name a Megatron (a release, a tag, a commit, a place, what is installed), and where its source is."""

from __future__ import annotations

import ast
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.sources import Files, light_model, model_of, read_source
from mcore_unpatch.megatron import commits, known
from mcore_unpatch.megatron.versions import LIBRARY, RELEASES, ROOT, Version, parse_version
from mcore_unpatch.stacks.revision import Revision, of_reference, of_release

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


INSTALLED = "installed"  # the one that an import would find


@dataclass(frozen=True, slots=True)
class Target:
    """One Megatron that the user named: its releases, and its source where that is at hand."""

    revision: Revision
    source: MegatronSource | None = None

    def models(self) -> list[Model]:
        """The model of its source, or of each release that stands for it."""
        if self.source is not None:
            return [model_of(LIBRARY, self.source.label, self.source.files)]
        return [known.newest(version) for version in self.revision.versions]

    def lend(self) -> None:
        """Let its source speak for its version in this process, where it has one."""
        if self.source is not None:
            known.lend(self.revision.versions[0], self.models()[0])


def target(text: str) -> Target:
    """What a user means by a text; raises `UsageError` with the ways to name one."""
    plain = text.strip()
    release = of_release(plain)
    if release is not None and release.certain:
        return Target(release)
    if release is not None or plain == INSTALLED:
        source = installed_source()
        if source is not None and (release is None or f"{source.label}.".startswith(f"{release.name}.")):
            return _of_source(source)
        if release is None:
            raise UsageError(
                "No megatron-core is installed beside unpatch; pass a checkout, a wheel or CLONE@COMMIT instead."
            )
        raise UsageError(
            f"This version of unpatch knows megatron-core {RELEASES[0]} to {RELEASES[-1]}, not {plain}; pass its "
            f"source instead (a checkout, a wheel, a folder, or CLONE@COMMIT). Known: {', '.join(RELEASES)}."
        )
    clone, at, _ = plain.rpartition("@")
    if os.path.lexists(plain) or (at and os.path.isdir(clone)):  # noqa: PTH112
        return at_place(plain)
    reference = of_reference(plain)
    if reference.versions:
        if reference.versions[-1] < parse_version(RELEASES[0]):
            raise UsageError(
                f"{plain} is {reference.words}, the oldest known; pass a clone that has it: CLONE@{plain}."
            )
        return Target(reference)
    if commits.is_commit(plain):
        raise UsageError(f"{plain} is {reference.words}; pass a clone that has it: CLONE@{plain}, or a checkout of it.")
    raise UsageError(
        f"{text!r} is no Megatron: pass a release ({RELEASES[0]} to {RELEASES[-1]}), a tag or a branch (core_v0.18.0, "
        "main), a commit of at least 7 digits, a checkout, a wheel, CLONE@COMMIT, or `installed`."
    )


def at_place(place: str) -> Target:
    """The Megatron whose source lies somewhere; raises `UsageError`."""
    return _of_source(source_at(place), f"the source in {place}")


def _of_source(source: MegatronSource, words: str = "the one that is installed") -> Target:
    return Target(Revision(source.label, (source.version,), words), source)
