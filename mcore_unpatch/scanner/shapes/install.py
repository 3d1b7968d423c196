"""One patch as every shape gives it, before it is judged."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from mcore_unpatch.megatron import api
from mcore_unpatch.scanner.names.resolver import Position
from mcore_unpatch.scanner.sources.scopes import Site


@dataclass(slots=True, eq=False)
class Install:
    """One patch before it is judged: where it stands, what it replaces, and with what."""

    site: Site
    node: ast.AST
    target: str
    shape: str
    sure: bool
    why: str
    value: ast.expr | None = None
    owner: str = ""  # the class or module that is changed
    attribute: str = ""
    base: ast.expr | None = None
    adds: bool = False  # a name Megatron does not have is added, nothing is replaced
    mock: bool = False  # a test's mock: a family of its own
    possible: bool = False  # an object of unknown type, told by the method's name alone
    on_instance: bool = False  # of one object alone
    patches_more: bool = False  # the statement patches more modules than this
    named: str = ""  # the dotted name of what takes its place, where a text gives it
    inner: Position | None = None  # within the helper that makes it
    restores: list[Site] = field(default_factory=list)


def parted(target: str) -> tuple[str, str]:
    """The class or module of a dotted name, and what of it."""
    owner, _, attribute = target.rpartition(".")
    return owner, attribute


def core_target(dotted: str) -> str:
    """A dotted string as the definition it names, also `module:name`; a method keeps its name behind its class."""
    dotted = dotted.replace(":", ".", 1)
    owner, _, leaf = dotted.rpartition(".")
    symbol = api.lookup(owner)
    if symbol and symbol.kind in {"class", "module"}:
        return f"{symbol.name}.{leaf}"
    return dotted
