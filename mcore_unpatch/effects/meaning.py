"""What of the library an expression means: by the imports of its file, or by what its objects are."""

from __future__ import annotations

import ast
from typing import NamedTuple

from mcore_unpatch.code.module import BindingKind, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import spelled
from mcore_unpatch.code.values import Kind, Value
from mcore_unpatch.library.interface import SymbolKind

_PLAIN = {"ABC", "Generic", "Protocol", "object"}  # bases that bring no member of a name that the library has


class Meant(NamedTuple):
    """A name of the library's under its dotted names: as it is imported, each way where there are several.

    by_name: it is the file's own name for it. through_class: read of a module or class, not of an object.
    parts: behind what was imported. added: keywords that a class of the repository takes itself.
    """

    names: tuple[str, ...]
    by_name: bool = False
    through_class: bool = False
    parts: int = 0
    added: frozenset[str] = frozenset()


def meant(names: Names, node: ast.expr) -> Meant | None:
    """What of the library an expression reads."""
    if not isinstance(node, (ast.Attribute, ast.Name)):
        return None
    return written(names, node) or _resolved(names, node)


def written(names: Names, node: ast.expr) -> Meant | None:
    """What a dotted path means by the imports of its file: each release is asked for the name as it is written."""
    root, _, rest = spelled(node).partition(".")
    bindings = scope_of(node).bindings(root) if root else []
    starts: dict[str, None] = {}
    for binding in bindings:
        if binding.kind == BindingKind.IMPORT:
            starts[binding.value.name if binding.value.asname else root] = None
        elif binding.kind == BindingKind.FROM and not binding.node.level:
            starts[f"{binding.node.module}.{binding.value.name}"] = None
        elif not (isinstance(binding.value, ast.Constant) and binding.value.value is None):  # when the import fails
            return None
    found = tuple(f"{start}.{rest}" if rest else start for start in starts)
    if not found or not all(map(names.library.within, found)):
        return None
    return Meant(found, not rest, True, rest.count(".") + 1 if rest else 0)


def _resolved(names: Names, node: ast.Attribute | ast.Name) -> Meant | None:
    if isinstance(node, ast.Attribute):
        if not names.library.says(node.attr):
            return None
        base = names.of(node.value)
        if len(base) == 1 and (base[0].kind == Kind.INSTANCE or (base[0].kind == Kind.MODULE and not base[0].node)):
            return _member(names, base[0], node.attr)
    found = names.of(node)
    if len(found) != 1:
        return None
    one = found[0]
    if one.kind == Kind.CLASS and one.node is not None and isinstance(node, ast.Name):
        return _built(names, one)
    if one.kind not in (Kind.FUNCTION, Kind.CLASS, Kind.MODULE) or one.node is not None:
        return None
    if not names.library.within(one.name):
        return None
    unbound = one.owner is None or one.owner.kind == Kind.CLASS
    return Meant((one.name,), isinstance(node, ast.Name), unbound)


def _member(names: Names, base: Value, name: str) -> Meant | None:
    """A member of a module or object, where some release has it."""
    dotted = f"{base.name}.{name}"
    if base.kind == Kind.INSTANCE:
        owner = library_class(names, base, name)
        dotted = f"{owner}.{name}" if owner else ""
    if not dotted or not names.library.within(dotted) or not is_known(names, dotted):
        return None
    return Meant((dotted,), through_class=base.kind == Kind.MODULE)


def is_known(names: Names, dotted: str) -> bool:
    """Whether any release has a name."""
    owner, _, name = dotted.rpartition(".")
    return names.library.symbol(dotted) is not None or names.library.inherits(owner, name)


def library_class(names: Names, value: Value, name: str) -> str:
    """The library's class that an object has a member from; nothing where a class of the repository has it."""
    for cls in names.lineage(value):
        if cls.node is not None:
            scope = cls.node._inner
            if name in scope.names or name in scope.attributes:
                return ""
        elif names.library.within(cls.name):
            return cls.name
        elif cls.name.rpartition(".")[2] not in _PLAIN:
            return ""  # a base from elsewhere may have it
    return ""


def _built(names: Names, value: Value) -> Meant | None:
    """A class of the repository that leaves its constructor to the library's."""
    if not (base := library_class(names, value, "__init__")) or library_class(names, value, "__new__") != base:
        return None
    fields = {
        item.target.id
        for cls in names.lineage(value)
        if cls.node is not None
        for item in cls.node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    symbol = names.library.symbol(base)
    is_class = symbol is not None and symbol.kind == SymbolKind.CLASS
    return Meant((base,), True, True, 0, frozenset(fields)) if is_class else None
