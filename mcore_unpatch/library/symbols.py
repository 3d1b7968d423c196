"""What a name of a library stands for, and what a class of it has under a name."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class SymbolKind(StrEnum):
    """What a name of a library stands for."""

    MODULE = "module"
    CLASS = "class"
    FUNCTION = "function"
    VALUE = "value"
    STATE = "state"  # a value that the library itself rebinds: setting it is no patch


class Symbol(NamedTuple):
    """A definition of a library under the dotted name where it stands."""

    kind: SymbolKind
    name: str


class MemberKind(StrEnum):
    """What a class has under a name."""

    METHOD = "method"
    PROPERTY = "property"
    ATTRIBUTE = "attribute"
    CLASS = "class"


class Member(NamedTuple):
    """Something a class has of its own; `holds`: the class of the object that it is or returns, where that is known."""

    kind: MemberKind
    owner: str
    holds: str = ""
    is_callable: bool = False  # an attribute that is annotated as a function
    is_list: bool = False  # of such objects
