"""Reads through a part of what the library makes, whose type lacks now what is read of it: `spec.parts.mlp.parts`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from mcore_unpatch.code.module import Module, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.values import Kind
from mcore_unpatch.effects.raising import Raising
from mcore_unpatch.effects.records import Cause, Effect, Outcome, When, place_of
from mcore_unpatch.library.detailed import Detailed


class Parts:
    """Answers for one repository."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._changed: dict[tuple[str, str], dict[str, tuple[str, str, str]]] = {}

    def gone(self, module: Module, old: Detailed, raising: Raising) -> Iterator[Effect]:
        """The reads in a file that the newer release has no attribute for."""
        new = raising.release
        changed = self._fields(old, new)
        spelled = rb"\.(%b)\b" % "|".join(changed).encode()
        if not changed or not re.search(spelled, self._names.index.sources[module.path]):
            return
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Attribute) or not isinstance(node.ctx, ast.Load):
                continue
            part = self._value(node.value)
            if not isinstance(part, ast.Attribute) or part.attr not in changed:
                continue
            name, was, is_now = changed[part.attr]
            if old.has(f"{was}.{node.attr}") is not True or new.has(f"{is_now}.{node.attr}") is not False:
                continue
            if self._is_of_library(part, was) and raising.runs_at(node, "AttributeError"):
                cause = Cause(f"{name}.{node.attr}")
                yield Effect(
                    Outcome.NAME_GONE, (new.label,), cause, place_of(node, module.path, When.CALL), "AttributeError"
                )

    def _value(self, node: ast.expr) -> ast.AST | None:
        """What a name was bound to, once."""
        bindings = scope_of(node).bindings(node.id) if isinstance(node, ast.Name) else []
        return bindings[0].value if len(bindings) == 1 and not bindings[0].path else node

    def _is_of_library(self, part: ast.Attribute, cls: str) -> bool:
        """Whether the parts are of an object that the library made, not of one that the file makes itself."""
        holder = part.value
        if not isinstance(holder, ast.Attribute) or not any(
            one.kind == Kind.INSTANCE and one.name == cls for one in self._names.of(holder.value)
        ):
            return False
        calls = (call for call in scope_of(part).module.calls for word in call.keywords if word.arg == part.attr)
        return not any(calls)

    def _fields(self, old: Detailed, new: Detailed) -> dict[str, tuple[str, str, str]]:
        """The fields of parts that have another type: their name, what it was, and what it is."""
        key = (old.label, new.label)
        if key not in self._changed:
            found: dict[str, tuple[str, str, str]] = {}
            for holder, _, field in {slot.partition(".") for slots in old.in_specs.values() for slot in slots}:
                for home in self._names.library.modules_with(holder):
                    name = f"{home}.{holder}.{field}"
                    entries = [one.entry(name) for one in (old, new)]
                    was, is_now = (entry.trait("type") if entry is not None else None for entry in entries)
                    if was and is_now and was != is_now and old.is_class(was) and new.is_class(is_now):
                        found[field] = (name, was, is_now)
            self._changed[key] = found
        return self._changed[key]
