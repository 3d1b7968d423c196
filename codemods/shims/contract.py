"""What a downstream's files define and which shim has the same names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from mcore_unpatch.codemods.codemod import Codemod
from mcore_unpatch.editing.edits import Level, Repository
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.records import record


@record
class Gain:
    """What a maintainer has of a move, on the releases from `since` to before `until`."""

    text: str  # with `{}` for the releases in use
    since: Version = HOOK_SINCE
    until: Version = (99,)
    mends: bool = False  # an error that goes


@dataclass(frozen=True)
class Shim:
    """A file of the downstream, the module that replaces it, and its names with the rule of each."""

    file: str  # below the downstream's package
    compat: str
    names: Mapping[str, str]
    gains: tuple[Gain, ...] = ()
    level: Level = "exact"  # of a move: the same bits, or the same to rounding
    # Words of the file that is replaced with what the shim does otherwise: the move then changes something on purpose.
    differs: tuple[tuple[bytes, str], ...] = ()
    recipe: str = ""  # how to do without a shim: a line, then code, with the names of `{path}` and `{package}`
    says: str = ""  # the comment of the guard, where it is not that of the hook

    def gain_on(self, live: Sequence[Version]) -> Gain | None:
        """What a project has of a move that runs some Megatrons: the first that is known."""
        return next((one for one in self.gains if any(one.since <= version < one.until for version in live)), None)

    @property
    def module(self) -> str:
        """The last part of the file's module name."""
        return self.file.rpartition("/")[2].removesuffix(".py")


@dataclass(frozen=True)
class Contract:
    """One downstream: its package, its files with their shims, and helpers that the shims have their own of."""

    package: str
    shims: tuple[Shim, ...]
    words: tuple[bytes, ...]  # a file without one of these has no part in it; fast to look for
    # File -> the names of it whose use leads there; where it has none of them, all of it counts.
    helpers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    knows_modules: bool = True  # whether the modules' names tell them from others
    # Private names that a shim replaces as well: a file of the downstream is known by them.
    private: tuple[str, ...] = ()

    @cached_property
    def hint(self) -> re.Pattern[bytes]:
        """What a file says that has a part in it: one of the names, or a module's."""
        names = [name for shim in self.shims for name in shim.names]
        modules = [shim.module for shim in self.shims] if self.knows_modules else []
        return re.compile(rf"\b(?:{'|'.join([*modules, *names, *self.private])})\b".encode())

    def shim_at(self, path: str) -> Shim | None:
        """The shim for a path, by the name of the file alone."""
        name = path.rpartition("/")[2]
        return next((shim for shim in self.shims if shim.file.rpartition("/")[2] == name), None)

    def outside(self, module: str) -> Shim | None:
        """The shim for a module of the installed downstream, one that is no file of the repository."""
        for shim in self.shims:
            dotted = f"{self.package}.{shim.file.removesuffix('.py').replace('/', '.')}"
            if module == dotted or module.endswith(f".{dotted}"):
                return shim
        return None

    def package_of(self, path: str, shim: Shim) -> str:
        """What the package is called that a file of the downstream belongs to."""
        above = path.removesuffix(shim.file).rstrip("/") if path.endswith(f"/{shim.file}") else ""
        return above.rpartition("/")[2] or self.package


class ShimCodemod(Codemod):
    """The codemod of a downstream with a contract."""

    contract: ClassVar[Contract]
    level = "exact"

    def says(self, data: bytes) -> bool:
        """Whether a file says one of the names."""
        return super().says(data) and self.contract.hint.search(data) is not None

    def findings(self, project: Repository, known: Sequence[Finding]) -> Iterator[Finding | FileError]:
        """Every use of a name, and definitions without a patch."""
        from mcore_unpatch.codemods.shims.sightings import found

        yield from found(self.contract, project, known)[1]
