"""What an object is that no type tells: by what is bound to it, by where it came from, by what is used of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.code.conditions import reaching
from mcore_unpatch.code.module import BindingKind, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import function_of, last_name, spelled, text_of, walk
from mcore_unpatch.code.values import Kind
from mcore_unpatch.patches import replacements
from mcore_unpatch.patches.records import Confidence, Spelling, Target, Write
from mcore_unpatch.patches.replacements import bound_to

# Names of methods that many libraries have: they tell nothing.
_EVERYBODYS = """
forward backward step train eval state_dict load_state_dict zero_grad named_parameters parameters named_modules modules
children register_buffer register_parameter requires_grad_ to_empty from_pretrained save_pretrained __init__ __call__
add_argument get_rope_index train_step all_reduce no_sync
"""
_COMMON = frozenset(_EVERYBODYS.split())
_DEEPEST = 3


class Evidence:
    """Answers for one repository; asked only where nothing else is known."""

    def __init__(self, names: Names) -> None:
        self.names, self.library = names, names.library

    def about(self, write: Write, name: str, near: bool, typed: bool) -> Target | None:
        """The target of a write to an object of which nothing is known, or (`typed`) only that it is something else.

        near: the file imports the library.
        """
        parts = [cls for part in self._taken_from(write.base, _DEEPEST) if (cls := self.library.part(part))]
        if self.library.part(name) and last_name(write.base) != "submodules" and not typed:
            if replacements.made(self.names, write.value) and (name == "output_layer" or (parts and near)):
                return _likely(parts[0] if parts else self.library.whole(), name, Spelling.SUBMODULE)
        bound = bound_to(write.value) is not None
        found = self.names.of(write.value)
        is_function = any(one.kind == Kind.FUNCTION and one.node is not None for one in found)
        if not bound and not is_function and name != "__class__":
            return None
        named = self._by_binding(write.value)
        if typed and not named:
            used = self._by_use(write, name) if near and bound else []
            return _possible(used[0], name) if len(used) == 1 else None
        for owner in named + parts:
            if name in ("forward", "__class__") or self._has(owner, name):
                return _likely(owner, name, Spelling.INSTANCE_ATTRIBUTE)
        if name == "__class__":
            return None
        used = self._by_use(write, name) if near else []
        if used:
            return _likely(used[0], name, Spelling.INSTANCE_ATTRIBUTE) if len(used) == 1 else _possible(used[0], name)
        if bound and named + parts:
            return _likely((named + parts)[0], name, Spelling.INSTANCE_ATTRIBUTE)
        called = self.library.part(last_name(write.base))
        if near and called and self._has(called, name):
            return _possible(called, name)  # `optimizer.step = ...` where the library is imported
        if name == "forward" and near and (bound or _is_kept(write, name)):
            return _possible(self.library.module_class(), name)
        return None

    def _by_most(self, name: str, others: set[str]) -> str:
        """The class that has a method, and most else that is used of the object."""
        if name in _COMMON or name.startswith("__"):
            return ""
        ranked = [(sum(self._has(cls, other) for other in others), cls) for cls in self.library.owners(name)]
        most = max(ranked, default=(0, ""))[0]
        best = [cls for count, cls in ranked if count == most]
        return best[0] if most > 1 and len(best) == 1 else ""

    def _has(self, cls: str, name: str) -> bool:
        return any(self.library.own_member(base, name) for base in self.library.lineage(cls))

    def _by_binding(self, value: ast.AST | None) -> list[str]:
        """`fn.__get__(obj, Cls)`, and `self: Cls` of the function that is bound."""
        found: list[str] = []
        if isinstance(value, ast.Call) and last_name(value.func) == "__get__" and len(value.args) == 2:
            found += [one.name for one in self.names.of(value.args[1]) if one.kind == Kind.CLASS]
        if bound_to(value) is not None:
            functions = (one.node for one in self.names.of(value) if one.kind == Kind.FUNCTION and one.node is not None)
            firsts = ((node.args.posonlyargs + node.args.args)[:1] for node in functions)
            found += [one.name for first in firsts if first for one in self.names.annotated(first[0].annotation)]
        return [name for name in found if self.library.is_class(name)]

    def _taken_from(self, node: ast.AST | None, depth: int) -> Iterator[str]:
        """The attributes an object was read from: `decoder`, for `d = model.decoder` and `f(model.decoder)`."""
        if isinstance(node, ast.Attribute):
            if node.attr == "__class__":
                yield from self._taken_from(node.value, depth)
            else:
                yield node.attr
        elif isinstance(node, ast.Subscript):
            yield from self._taken_from(node.value, depth)
        elif isinstance(node, ast.Call) and last_name(node.func) == "getattr" and len(node.args) > 1:
            yield from filter(None, [text_of(node.args[1])])
        elif isinstance(node, ast.Call) and last_name(node.func) in ("enumerate", "list", "reversed") and node.args:
            yield from self._taken_from(node.args[0], depth)
        elif isinstance(node, ast.Name) and depth:
            scope = scope_of(node)
            home = scope.home_of(node.id)
            for binding in reaching(home.names[node.id], node, home is scope) if home is not None else ():
                if binding.kind == BindingKind.PARAMETER:
                    for call in self.names.callers(function_of(binding.node)):
                        yield from self._taken_from(self.names.argument(binding.node, call), depth - 1)
                elif binding.value is not None and binding.kind == BindingKind.ASSIGNMENT:
                    yield from self._taken_from(binding.value, depth - 1)

    def _by_use(self, write: Write, name: str) -> list[str]:
        """The classes whose methods are used on the same object in the same function, where nobody else has such."""
        subject = spelled(write.base)
        function = scope_of(write.place).function()
        bound = bound_to(write.value) is not None
        used = {name} | (_used_of(subject, function.node) if function is not None and subject else set())
        if best := self._by_most(name, used - {name}):
            return [best]
        for attribute in sorted(used, key=lambda each: (each != name, each)):
            is_written = attribute == name and (bound or _is_kept(write, name))
            telling = "_" in attribute.strip("_") or attribute.startswith("_") or is_written
            if not telling or attribute in _COMMON or attribute.startswith("__"):
                continue
            owners = self.library.owners(attribute)
            roots = [one for one in owners if not any(base in owners for base in self.library.lineage(one)[1:])]
            if len(roots) == 1 or (attribute == name and attribute.startswith("_") and roots):
                fits = [root for root in roots if attribute == name or bound or self._has(root, name)]
                whole = self.library.whole()
                return sorted(fits, key=lambda one: one != whole)
        return []


def _likely(owner: str, name: str, spelling: Spelling) -> Target:
    return Target(f"{owner}.{name}", spelling, Confidence.LIKELY)


def _possible(owner: str, name: str) -> Target:
    return Target(f"{owner}.{name}", Spelling.INSTANCE_ATTRIBUTE, Confidence.POSSIBLE)


def _used_of(subject: str, function: ast.AST) -> set[str]:
    """The attributes of an object that a function reads, writes or asks for."""
    used: set[str] = set()
    for node in walk(function):
        if isinstance(node, ast.Attribute) and spelled(node.value) == subject:
            used.add(node.attr)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("getattr", "hasattr") and len(node.args) > 1:
            if spelled(node.args[0]) == subject and (text := text_of(node.args[1])) is not None:
                used.add(text)
    return used


def _is_kept(write: Write, name: str) -> bool:
    """`original = obj.forward`: what is written over is read first, in the same function."""
    function = scope_of(write.place).function()
    subject = spelled(write.base)
    return bool(subject) and any(
        isinstance(node, ast.Attribute)
        and node.attr == name
        and isinstance(node.ctx, ast.Load)
        and spelled(node.value) == subject
        for node in (walk(function.node) if function is not None else ())
    )
