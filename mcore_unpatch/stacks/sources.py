"""Any way to name a Megatron (a release, a tag, a commit, a place, what is installed), and where its source is.

As a submodule, or inside of one, it is the commit that the repository has recorded for it.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.sources import Files, light_model, model_of, read_source
from mcore_unpatch.megatron import commits, known
from mcore_unpatch.megatron.versions import LIBRARY, RELEASES, ROOT, parse_version
from mcore_unpatch.records import record, replace
from mcore_unpatch.repository import git, reading
from mcore_unpatch.stacks.revision import CARRIER, REPOSITORY, ReadFile, Revision, carried, of_reference, of_release

INFO = "megatron/core/package_info.py"
_NUMBER = re.compile(rb"(?m)^(MAJOR|MINOR|PATCH)[ \t]*=[ \t]*(\d+)[ \t]*(?:#.*)?\r?$")
INSTALLED = "installed"  # the one that an import would find
_REPOSITORY = re.compile(rf"^{REPOSITORY}/?$", re.IGNORECASE)
_CARRIER = re.compile(rf"{CARRIER}(?:\.git)?/?$", re.IGNORECASE)
_SETTLE = "run `git submodule update --init --recursive`, or name it with --target-mcore"


@record
class MegatronSource:
    """The files of a Megatron, and the release it says it is."""

    label: str
    files: Files


def source_at(place: str | Path) -> MegatronSource:
    """A Megatron in a checkout, a wheel, a folder or `CLONE@COMMIT`; raises `UsageError`."""
    files = read_source(place, LIBRARY)
    return MegatronSource(label_of(files.get(INFO, b""), place), files)


def installed_model() -> Model | None:
    """The megatron-core that an import would find, for a few questions about names; read, not imported."""
    source = installed_source()
    if source is None:
        return None
    return light_model(LIBRARY, source.label, source.files, lambda: known.atlas().names)


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
    numbers = dict(_NUMBER.findall(info))
    if len(numbers) < 3:
        raise UsageError(f"{INFO} of {place} does not name a release; pass a complete checkout or wheel.")
    return ".".join(str(int(numbers[name])) for name in (b"MAJOR", b"MINOR", b"PATCH"))


@record
class Target:
    """One Megatron that the user named: its releases, and its source where that is at hand."""

    revision: Revision
    source: MegatronSource | None = None

    def models(self) -> list[Model]:
        """The model of its source, or of each release that stands for it."""
        if self.source is not None:
            return [model_of(LIBRARY, self.source.label, self.source.files)]
        return [known.newest(version) for version in self.revision.versions]


def target(text: str) -> Target:
    """What a user means by a text; raises `UsageError` with the ways to name one."""
    plain = text.strip()
    release = of_release(plain)
    if release is not None and release.certain:
        return Target(release)
    if release is not None or plain == INSTALLED:
        source = installed_source()
        if source is not None and (release is None or f"{source.label}.".startswith(f"{release.name}.")):
            return _of_source(source, INSTALLED, "the one that is installed")
        if release is None:
            none = "No megatron-core is installed beside unpatch"
            raise UsageError(f"{none}; pass a checkout, a wheel or CLONE@COMMIT instead.")
        raise UsageError(
            f"This version of unpatch knows megatron-core {RELEASES[0]} to {RELEASES[-1]}, not {plain}; pass its "
            f"source instead (a checkout, a wheel, a folder, or CLONE@COMMIT). Known: {', '.join(RELEASES)}."
        )
    clone, at, _ = plain.rpartition("@")
    if os.path.lexists(plain) or (at and os.path.isdir(clone)):  # noqa: PTH112
        return _of_source(source_at(plain), plain, f"the source in {plain}")
    reference = of_reference(plain)
    if reference.versions:
        if reference.is_older:
            known_from = f"{plain} is {reference.words}, the oldest known"
            raise UsageError(f"{known_from}; pass a clone that has it: CLONE@{plain}.")
        return Target(reference)
    if commits.is_commit(plain):
        raise UsageError(f"{plain} is {reference.words}; pass a clone that has it: CLONE@{plain}, or a checkout of it.")
    raise UsageError(
        f"{text!r} is no Megatron: pass a release ({RELEASES[0]} to {RELEASES[-1]}), a tag or a branch (core_v0.18.0, "
        "main), a commit of at least 7 digits, a checkout, a wheel, CLONE@COMMIT, or `installed`."
    )


def _of_source(source: MegatronSource, given: str, words: str) -> Target:
    return Target(Revision(source.label, (parse_version(source.label),), words, given=given), source)


def of_modules(file: ReadFile) -> None:
    """The Megatrons that `.gitmodules` names, and those that a carrier among them holds."""
    for line, path, address in _modules(file.text):
        megatron, carrier = _REPOSITORY.match(address), _CARRIER.search(address)
        if not megatron and not carrier:
            continue
        commit = _recorded(file.top, path)
        if commit is None:
            said = f"the submodule {path} has no recorded commit, so its Megatron is not known"
            file.notes.append((line, said))
        else:
            name = f"{megatron[1]}/{megatron[2]}" if megatron else ""
            revision = of_reference(commit, name) if megatron else _carried(file.top / path, commit)
            if not revision.versions and (file.top / path / "megatron/core").is_dir():
                settle = f"pass its source, which is here: --target-mcore {path}"
                revision = replace(revision, settle=settle)
            file.found.append((line, revision))


def of_vendored(file: ReadFile) -> None:
    """The `package_info.py` of a Megatron that the repository carries."""
    revision = _on_disk(file.top / file.path.removesuffix(INFO))
    file.found += [(1, revision)] if revision else []


def from_folder(file: ReadFile, line: int, path: str) -> None:
    """A folder of the repository that a project takes Megatron from."""
    if revision := _of_folder(file.top, file.modules, os.path.join(os.path.dirname(file.path), path)):  # noqa: PTH118, PTH120
        file.found.append((line, revision))
    else:
        file.notes.append((line, f"Megatron is taken from {path}, which is not here"))


def _of_folder(top: Path, modules: str, path: str) -> Revision | None:
    """A submodule, a folder inside of one, or plain files."""
    inside = os.path.normpath(path).replace(os.sep, "/")
    for _, submodule, address in _modules(modules):
        if inside == submodule and (commit := _recorded(top, submodule)):
            name = _REPOSITORY.match(address)
            return of_reference(commit, f"{name[1]}/{name[2]}" if name else "")
        if inside.startswith(f"{submodule}/") and (commit := _recorded(top, submodule)):
            return _carried(top / submodule, commit)
    return _on_disk(top / inside)


def _carried(folder: Path, commit: str) -> Revision:
    """The Megatron in a carrier: what the carrier has recorded, if it is checked out."""
    if os.path.lexists(folder / ".git"):
        try:
            text = reading.read_below(folder, folder / ".gitmodules").decode(errors="replace")
            for _, path, address in _modules(text):
                if (megatron := _REPOSITORY.match(address)) and (inner := _recorded(folder, path)):
                    return of_reference(inner, f"{megatron[1]}/{megatron[2]}")
        except OSError:
            pass
    return carried(f"{folder.name}@{commit[:8]}", folder.name, _SETTLE)


def _on_disk(folder: Path) -> Revision | None:
    try:
        return of_release(label_of(reading.read(folder / INFO)))
    except (OSError, UsageError):
        return None


def _modules(text: str) -> Iterator[tuple[int, str, str]]:
    """Of each table of `.gitmodules` its line, path and address."""
    tables: list[tuple[int, dict[str, str]]] = []
    for number, each in enumerate(text.splitlines(), 1):
        key, _, value = (part.strip() for part in each.partition("="))
        if each.lstrip().startswith("["):
            tables.append((number, {}))
        elif tables:
            tables[-1][1][key] = value
    for line, said in tables:
        if said.get("path") and said.get("url"):
            yield line, said["path"], said["url"]


def _recorded(top: Path, path: str) -> str | None:
    """The commit that HEAD, or else the index, has for a submodule."""
    if path.startswith(("-", ":")):
        return None
    for asked in (("ls-tree", "HEAD", "--", path), ("ls-files", "--stage", "--", path)):
        try:
            words = os.fsdecode(git.run(top, "--literal-pathspecs", *asked)).split()
        except git.GitError:
            continue
        if words[:1] == ["160000"]:
            return next(word for word in words[1:] if len(word) == 40)
    return None
