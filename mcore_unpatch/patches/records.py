"""What is known of a patch: facts alone, no words for people."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from mcore_unpatch.code.module import Module
from mcore_unpatch.code.values import Frame, Value


class Spelling(StrEnum):
    """How a patch is written."""

    CLASS_ATTRIBUTE = "class-attr"
    INSTANCE_ATTRIBUTE = "instance-attr"
    MODULE_ATTRIBUTE = "module-attr"
    SETATTR = "setattr"
    MOCK = "mock"
    SUBMODULE = "submodule"  # a part of a model is swapped
    CLASS_OF_INSTANCE = "class-of-instance"
    SYS_MODULES = "sys-modules"
    STRING_TARGET = "string-target"  # a registry or table of dotted names
    SOURCE_REWRITE = "source-rewrite"
    PATCH_FILE = "patch-file"


class Confidence(StrEnum):
    """How sure it is that the target is the library's."""

    CERTAIN = "certain"  # names and types say it
    LIKELY = "likely"  # what is done with the object says it
    POSSIBLE = "possible"  # only the name of the method says it


class WriteKind(StrEnum):
    """How a write is spelled."""

    ATTRIBUTE = "attribute"
    ITEM = "item"  # of `__dict__` and `vars()`
    UNKNOWN_ITEM = "unknown-item"  # of what may be such a dict
    SETATTR = "setattr"
    SYS_MODULES = "sys-modules"
    MOCK = "mock"


class Write(NamedTuple):
    """`base.name = value`; without a name, `base` itself is replaced: an entry of `sys.modules`, a dotted text."""

    place: Any
    base: ast.AST
    name: ast.AST | str | None
    value: ast.AST | None
    kind: WriteKind


class Target(NamedTuple):
    """What a write changes, by its dotted name."""

    name: str
    spelling: Spelling
    sure: Confidence = Confidence.CERTAIN


@dataclass(frozen=True, eq=False)
class Patch:
    """One patch, from the scanner to the report."""

    module: Module
    place: Any  # the node that a reader is shown: a write, a row of a table, the call of a helper
    target: str
    spelling: Spelling
    sure: Confidence = Confidence.CERTAIN
    replacement: Value | None = None
    write: Write | None = None  # where it is made, if that is another place
    frame: Frame | None = None  # what the names there stand for
    temporary: bool = False

    @property
    def path(self) -> str:
        """The file it stands in."""
        return self.module.path

    @property
    def line(self) -> int:
        """The line it begins on."""
        return int(self.place.lineno)

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it apart from the others."""
        return (self.path, self.line, self.target)


class PatchFile(NamedTuple):
    """A diff that changes the library's source."""

    path: str
    line: int
    modules: tuple[str, ...]
