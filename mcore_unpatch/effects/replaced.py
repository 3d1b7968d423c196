"""A patch with what it puts in place: the function or class, what that takes, and where it calls what it replaced."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from mcore_unpatch.code.module import Module, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import FUNCTIONS, last_name
from mcore_unpatch.code.values import Kind
from mcore_unpatch.effects.callers import Answer
from mcore_unpatch.effects.originals import Originals
from mcore_unpatch.effects.records import place_of
from mcore_unpatch.library.interface import SymbolKind
from mcore_unpatch.library.signatures import Signature, written_signature
from mcore_unpatch.patches.records import Patch, Spelling, WriteKind
from mcore_unpatch.patches.replacements import bound_to

_PARTIAL = ("partial", "partialmethod")
# Decorators that leave the parameters of a function as they are.
_TRANSPARENT = {"staticmethod", "no_grad", "inference_mode", "enable_grad", "wraps", "compile", "jit_fuser"}
_TRANSPARENT |= {"override", "abstractmethod"}
_ON_OBJECTS = (Spelling.INSTANCE_ATTRIBUTE, Spelling.SUBMODULE, Spelling.CLASS_OF_INSTANCE)


class Replaced:
    """One patch, to be judged on any release."""

    def __init__(self, patch: Patch, names: Names) -> None:
        self.patch, self.names = patch, names
        self.target = patch.target
        self.owner, _, self.attribute = patch.target.rpartition(".")

    @property
    def value(self) -> ast.AST | None:
        """The expression that is put in place."""
        return self.patch.write.value if self.patch.write is not None else None

    @cached_property
    def function(self) -> Any:
        """The function that runs in place of the library's, where it is one of the repository."""
        made = self.patch.replacement
        return made.node if made is not None and isinstance(made.node, FUNCTIONS) else None

    @cached_property
    def own_class(self) -> ast.ClassDef | None:
        """The class of the repository that takes the place of one of the library's."""
        made = self.patch.replacement
        is_class = made is not None and made.kind == Kind.CLASS and isinstance(made.node, ast.ClassDef)
        return made.node if made is not None and is_class else None

    @property
    def functions(self) -> list[Any]:
        """All code that runs in place of the library's."""
        if self.function is not None:
            return [self.function]
        body = self.own_class.body if self.own_class is not None else ()
        return [item for item in body if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef))]

    @cached_property
    def homes(self) -> list[Module]:
        """The files that are imported for it: its own, and that of what it puts in place."""
        made = self.function if self.function is not None else self.own_class
        found = [self.patch.module, *([scope_of(made).module] if made is not None else [])]
        return list({module.path: module for module in found}.values())

    @cached_property
    def originals(self) -> Originals:
        """Where the replacement calls what it replaced."""
        return Originals(self.names, self.patch, self.function, self.is_alone)

    @property
    def reaches_original(self) -> bool:
        """Whether the replacement calls what it replaced, or hands it to somebody who may."""
        return bool(self.originals.reads)

    @cached_property
    def is_alone(self) -> bool:
        """Whether one object is patched, not its class."""
        write = self.patch.write
        if write is not None and last_name(write.base) == "__class__":
            return False
        if self.patch.spelling in _ON_OBJECTS:
            return True
        values = self.names.of(write.base, self.patch.frame) if write is not None else ()
        return bool(values) and all(value.kind == Kind.INSTANCE for value in values)

    @property
    def held_as(self) -> list[str]:
        """What the object that is patched is called where the patch is written: `output_layer`, for a helper's too."""
        write, place = self.patch.write, self.patch.place
        given = place.args if write is not None and write.place is not place and isinstance(place, ast.Call) else []
        named = [last_name(write.base)] if write is not None else []
        return [name for name in (*named, *(one.attr for one in given if isinstance(one, ast.Attribute))) if name]

    @property
    def is_of_nowhere(self) -> bool:
        """Whether what is put in place is the library's, under a name that no release has."""
        library = self.names.library
        found = self.names.of(self.value) if isinstance(self.value, (ast.Name, ast.Attribute)) else ()
        return bool(found) and all(library.within(one.name) and library.symbol(one.name) is None for one in found)

    @cached_property
    def is_of_class(self) -> bool:
        """Whether what is patched is a class or an object."""
        symbol = self.names.library.symbol(self.owner)
        return symbol is not None and symbol.kind == SymbolKind.CLASS

    @cached_property
    def adds(self) -> bool:
        """Whether the library never has what is set."""
        library = self.names.library
        return library.symbol(self.target) is None and not library.inherits(self.owner, self.attribute)

    @property
    def _wrapper(self) -> str:
        return last_name(getattr(self.value, "func", None))

    @cached_property
    def has_own_object(self) -> bool:
        """Whether it is a method of an object of the repository, which it is given in place of the patched one."""
        made = self.patch.replacement
        by_object = made is not None and made.owner is not None and made.owner.kind == Kind.INSTANCE
        is_plain = isinstance(self.value, ast.Attribute) and "staticmethod" not in self._decorators
        return by_object and is_plain and made is not None and made.node is not None

    @cached_property
    def is_bound(self) -> bool:
        """Whether the replacement is given the object that is patched."""
        if "staticmethod" in self._decorators and isinstance(self.value, ast.Name):
            return False  # the static method itself is assigned, not what a class makes of it
        if self.has_own_object:
            return False
        if bound_to(self.value) is not None:
            return True
        return self.is_of_class and not self.is_alone and self._wrapper not in ("staticmethod", *_PARTIAL)

    @cached_property
    def _decorators(self) -> set[str]:
        """The decorators of the replacement, the one that registers it left out."""
        found: set[str] = set()
        for decorator in getattr(self.function, "decorator_list", ()):
            if decorator is not self.patch.place:
                found.add(last_name(decorator.func if isinstance(decorator, ast.Call) else decorator))
        return found

    @cached_property
    def taken(self) -> Signature | None:
        """What the replacement takes, the object itself left out; nothing where that is not evident."""
        if self.function is None or self.adds or not self._decorators <= _TRANSPARENT:
            return None
        if self._wrapper in _PARTIAL or self.originals.is_given_first:
            return None
        whole = written_signature(self.function)
        return whole.without_first() if (self.is_bound or self.has_own_object) and whole.positional else whole

    @cached_property
    def answer(self) -> Answer | None:
        """The replacement as what answers the library's calls, where it is evident what it takes."""
        if self.taken is None:
            return None
        return Answer(self.function, self.taken, self.target, place_of(self.patch.place, self.patch.path))

    @cached_property
    def is_unread(self) -> bool:
        """Whether what is put in place is nothing that is known: no plain value, no class, no function."""
        if self.function is not None or self.own_class is not None:
            return False
        if self.value is None:
            return self.patch.write is None or self.patch.write.kind != WriteKind.MOCK
        known = self.names.of(self.value, self.patch.frame)
        return not isinstance(self.value, ast.Constant) and not any(one.kind == Kind.CLASS for one in known)

    def derives_from(self, name: str) -> bool:
        """Whether the class in place derives from one of the library's."""
        if self.own_class is None or self.patch.replacement is None:
            return False
        return any(one.name == name for one in self.names.lineage(self.patch.replacement)[1:])

    def words(self) -> Iterator[str]:
        """The names that the replacement says."""
        for function in self.functions:
            for node in ast.walk(function):
                if isinstance(node, (ast.Name, ast.Attribute)):
                    yield last_name(node)
