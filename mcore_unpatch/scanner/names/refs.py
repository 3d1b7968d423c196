"""What an expression of the scanned code stands for, as far as Megatron Core is concerned."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcore_unpatch.scanner.names.resolve import Resolver


@dataclass(frozen=True, slots=True)
class Ref:
    """A resolved expression.

    kind: module, class, instance, list (of instances of `name`), function or value of Megatron Core; or, with an empty
    or foreign `name`, local-module, local-function, and class / instance of a class of the repository's own.
    name: the dotted definition in Megatron Core; for a subclass that the repository defines, the Megatron class.
    """

    kind: str
    name: str = ""
    sure: bool = True
    why: str = ""
    home: Resolver | None = None  # where `node` stands, for things the repository defines
    node: ast.AST | None = None
    via: str = ""  # the attribute path a submodule was reached by, where it names the target better than its class
    also: tuple[str, ...] = ()  # further classes a loop variable takes
    possible: bool = False  # the least sure: told by a method's name alone
    bound: bool = False  # a method reached through an object

    def but(self, **changes: object) -> Ref:
        """A copy with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def is_core(self) -> bool:
        """Whether this is something of Megatron Core, or an instance or subclass of it."""
        return self.name.startswith("megatron.core")
