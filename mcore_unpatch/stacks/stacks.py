"""The Megatrons that a repository runs, which of them a file of it is judged for, and what a patch does on each."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import NEWEST, Version, show
from mcore_unpatch.repository import reading
from mcore_unpatch.repository.discover import listed
from mcore_unpatch.stacks.reading import EXTRA, HINT, OF_PYTHON, Found, read_all
from mcore_unpatch.stacks.revision import Judged, Revision, Said, Stack

_REQUIREMENTS = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.(?:py|cfg)|[\w.-]*requirements[\w.-]*\.txt|requirements/[^/]+)$"
)
_COMPAT = re.compile(rb"mcore[-_]unpatch\[compat\]")


@dataclass
class Stacks:
    """The stacks below `top`. Those that the user named (`given`, and why) overrule what the files say."""

    top: Path
    given: tuple[Revision, ...] = ()
    given_by: str = ""
    only: tuple[str, ...] = ()
    _known: dict[str, Judged] = field(default_factory=dict)
    _before: dict[str, str] = field(default_factory=dict)

    @cached_property
    def files(self) -> list[str]:
        """All files of the repository."""
        return listed(self.top)

    @cached_property
    def found(self) -> Found:
        """What the files of the repository say."""
        return read_all(self.top, self.files)

    @cached_property
    def all(self) -> tuple[Stack, ...]:
        """Every stack; what only a README says is not one."""
        if self.given:
            return self._narrowed(tuple(Stack(revision, why=self.given_by) for revision in self.given))
        return self._narrowed(_grouped(said for said in self.found.said if said.source != HINT))

    @property
    def hints(self) -> tuple[Stack, ...]:
        """What a README or the like speaks of."""
        return () if self.given else _grouped(said for said in self.found.said if said.source == HINT)

    def of(self, path: str) -> Judged:
        """What a file (posix, relative to the top) is judged for."""
        folder = posixpath.dirname(path)
        if folder not in self._known:
            stacks = self.all if self.given else self._narrowed(_grouped(self._said_for(folder)), quietly=True)
            self._known[folder] = Judged(stacks or self._unsaid())
        return self._known[folder]

    def in_use(self, path: str) -> tuple[Stack, ...]:
        """The Megatrons that a file meets, whatever it is judged for: the stated ones, or all that are named."""
        if self.given and self.given_by.startswith("stated"):
            return tuple(Stack(revision, why=self.given_by) for revision in self.given)
        return _grouped(self._said_for(posixpath.dirname(path)))

    def needs_no_guard(self, path: str) -> bool:
        """Whether every Megatron that a file meets has the hook, and the project asks for the shims."""
        known = [stack.versions for stack in self.in_use(path)]
        return self.requires_compat and bool(known) and all(one and min(one) >= HOOK_SINCE for one in known)

    @cached_property
    def requires_compat(self) -> bool:
        """Whether a file of the project asks for the package of the shims."""
        named = (path for path in self.files if _REQUIREMENTS.search(path))
        return any(_COMPAT.search(_bytes(self.top / path)) for path in named)

    def asked(self, path: str) -> Judged | None:
        """The same, unless nobody says anything."""
        judged = self.of(path)
        return judged if judged.stacks[0].said or self.given else None

    def below(self, folder: str) -> Judged | None:
        """The same of a folder; where nothing is said for it, what the projects in it say for themselves."""
        inside = f"{folder}/" if folder else ""
        said = (said for said in self.found.said if said.source != HINT and f"{said.scope}/".startswith(inside))
        stacks = () if self.given else self._narrowed(_grouped(said), quietly=True)
        return self.asked(f"{inside}x") or (Judged(stacks) if stacks else None)

    def versions(self, path: str) -> tuple[Version, ...]:
        """The releases that a file is judged for."""
        return self.of(path).versions

    def pinned(self, path: str) -> tuple[Version, ...]:
        """The releases that a file runs on, as far as they are known."""
        judged = self.asked(path)
        known = judged is not None and any(stack.versions for stack in judged.stacks)
        return judged.versions if judged is not None and known else ()

    def unsure(self, path: str) -> str:
        """Which stack of a file is not known, and how to settle it; nothing where all are."""
        unknown = next((stack for stack in self.of(path).stacks if not stack.versions), None)
        return "" if unknown is None else f"the release of {unknown} is not known: {unknown.revision.settle}"

    def open_for(self, path: str) -> str:
        """Why a file may run on a Megatron that is not known: one of its stacks, or what some file installs."""
        notes = [] if self.given or self.only else self.found.notes
        left = f"{notes[0].rstrip('.')}: name what runs with --target-mcore or --stack" if notes else ""
        return self.unsure(path) or left

    def before_the_hook(self, path: str) -> str:
        """Why a file may not have what needs the hook; nothing where every stack that it runs on has the hook."""
        folder = posixpath.dirname(path)  # by which the stacks are told
        if folder not in self._before:
            self._before[folder] = self._before_the_hook(path)
        return self._before[folder]

    def _before_the_hook(self, path: str) -> str:
        stacks = self.of(path).stacks
        older = [stack for stack in stacks if any(version < HOOK_SINCE for version in stack.needed)]
        unknown = [stack for stack in stacks if not stack.versions]
        stack = next(iter(older + unknown), None)
        if stack is None:
            return ""
        others = [other for other in stacks if other.versions and min(other.versions) >= HOOK_SINCE]
        narrow = f"; `--stack {others[-1].name}` leaves that one out" if others else ""
        needs = f"it needs megatron-core>={show(HOOK_SINCE)}"
        if not stack.versions:
            return f"{needs}, and {self.unsure(path)}{narrow}"
        runs = stack.name
        if not stack.revision.certain:
            runs += f", {stack.revision.words or show(stack.versions[-1])}"
        return f"{needs}, and the repository runs {runs} ({stack.place}){narrow}"

    def _said_for(self, folder: str) -> list[Said]:
        """What is said for a folder: by images and scripts of all projects around it, by the nearest Python project."""
        above = [folder]
        while above[-1]:
            above.append(posixpath.dirname(above[-1]))
        said = [said for said in self.found.said if said.source != HINT and said.scope in above]
        python = [mention for mention in said if mention.source in OF_PYTHON]
        nearest = next((scope for scope in above if any(said.scope == scope for said in python)), None)
        near = [mention for mention in python if mention.scope == nearest]
        # A pin of the project says what it runs; ranges count where there is none. That of an extra is one of several.
        exact = [mention for mention in near if not mention.revision.is_range]
        is_pinned = any(mention.source != EXTRA for mention in exact)
        exact.sort(key=lambda mention: mention.source == EXTRA)
        return [mention for mention in said if mention.source not in OF_PYTHON] + (exact if is_pinned else near)

    def _narrowed(self, stacks: tuple[Stack, ...], quietly: bool = False) -> tuple[Stack, ...]:
        if not self.only:
            return stacks
        kept = tuple(stack for stack in stacks if any(stack.goes_by(name) for name in self.only))
        if not kept and not quietly:
            names = ", ".join(stack.name for stack in stacks) or "none"
            raise UsageError(f"No stack goes by {' or '.join(self.only)}; the repository has: {names}.")
        return kept

    def _unsaid(self) -> tuple[Stack, ...]:
        """What counts where no project file names a release: what documentation says, else the newest that is known."""
        others = [said for said in self.found.said if said.source != HINT]
        told = self._narrowed(tuple(hint for hint in self.hints if hint.versions and not others), quietly=True)
        if told:
            only = "only a hint, but no project file names a release"
            return tuple(Stack(hint.revision, why=f"{hint.place}, {only}") for hint in told)
        others_say = f" for it; {others[0].place} names one for its own folder" if others else ""
        why = f"the newest known, no project file names a release{others_say}"
        return (Stack(Revision(show(NEWEST), (NEWEST,)), why=why),)


def _bytes(file: Path) -> bytes:
    try:
        return reading.read_own(file)
    except OSError:
        return b""


def _grouped(said: Iterable[Said]) -> tuple[Stack, ...]:
    """One stack for each Megatron: those that are known first, the newest first."""
    by_name: dict[str, dict[str, Said]] = {}
    for mention in said:
        by_name.setdefault(mention.revision.name, {}).setdefault(mention.place, mention)
    stacks = [Stack(next(iter(some.values())).revision, tuple(some.values())) for some in by_name.values()]
    return tuple(sorted(stacks, key=lambda one: (bool(one.versions), one.versions[-1:], one.name), reverse=True))
