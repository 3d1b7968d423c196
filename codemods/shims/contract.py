"""What a downstream's files define and which shim has the same names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from mcore_unpatch.codemods.codemod import Codemod
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding


@dataclass(frozen=True)
class Shim:
    """A file of the downstream, the module that replaces it, and its names with the rule of each."""

    file: str  # below the downstream's package
    compat: str
    names: Mapping[str, str]
    gain: str = ""  # what it is better at than code that stands on the hook already

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
    # Whether the files keep every name for code outside the repository, or only those that something still imports.
    keeps_names: bool = True
    # Private names that a shim replaces as well: a file of the downstream is known by them.
    private: tuple[str, ...] = ()

    @cached_property
    def hint(self) -> re.Pattern[bytes]:
        """What a file says that has a part in it: one of the names, or a module's."""
        names = [name for shim in self.shims for name in shim.names]
        modules = [shim.module for shim in self.shims] if self.keeps_names else []
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
    safety = "safe"

    def says(self, data: bytes) -> bool:
        """Whether a file says one of the names."""
        return super().says(data) and self.contract.hint.search(data) is not None

    def findings(self, project: Repository, known: Sequence[Finding]) -> Iterator[Finding | FileError]:
        """Every use of a name, and definitions without a patch."""
        from mcore_unpatch.codemods.shims.sightings import found

        yield from found(self.contract, project, known)[1]
