"""What of Megatron's an expression means: by the imports of its file, or by what its objects are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from mcore_unpatch.library.syntax import leaf_of
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.scanner.names.resolver import Ref, Resolver
from mcore_unpatch.scanner.sources.scopes import Binding, path_text

_MOST_BASES = 30
_NAMES = ast.Attribute | ast.Name
_PLAIN = {"ABC", "Generic", "Protocol", "object"}  # bases that bring no member of a name that Megatron has


class Meant(NamedTuple):
    """A name of Megatron's under its dotted names: as it is imported, each way where there are several."""

    names: tuple[str, ...]
    by_name: bool = False
    through_class: bool = False
    parts: int = 0  # behind what was imported
    added: frozenset[str] = frozenset()


def ever(name: str, through: bool = False) -> Meant | None:
    """A name that is told by an object, where some release has it; maybe where that had the class."""
    owner, _, last = name.rpartition(".")
    homes = (owner, *(known.name_on(minor, owner) for minor in known.minors()))
    had = next((f"{home}.{last}" for home in homes if known.ever(f"{home}.{last}")), None)
    return Meant((had,), through_class=through) if had is not None else None


def written(node: ast.Attribute | ast.Name, home: Resolver) -> Meant | None:
    """What a dotted path means by the imports of its file: each release is asked for the name as it is written."""
    path = path_text(node)
    if path is None:
        return None
    root, _, rest = path.partition(".")
    scope, _ = home.model.at(node.lineno)
    around = next((around for around in scope.chain() if root in around.bindings), None)
    if around is None:
        return None
    starts = home.kept((written, around, root), lambda: _imported(around.bindings[root]))
    names = tuple(f"{start}.{rest}" if rest else start for start in starts)
    if not names or not all(map(within, names)):
        return None
    return Meant(names, not rest, True, rest.count(".") + 1 if rest else 0)


def _imported(bindings: list[Binding]) -> list[str]:
    """What a name is imported as, each once; nothing where it may be something else."""
    starts: dict[str, None] = {}
    for binding in bindings:
        if binding.kind == "import":
            starts[binding.detail] = None
        elif binding.kind == "from" and isinstance(binding.node, ast.ImportFrom) and not binding.node.level:
            starts[f"{binding.node.module}.{binding.detail}"] = None
        elif not (isinstance(binding.node, ast.Constant) and binding.node.value is None):  # the fallback of an import
            return []
    return list(starts)


def picked(node: ast.expr, home: Resolver) -> Meant | None:
    """`get_forward_backward_func()`, called at once or by a variable: one of the functions that it may give."""
    if isinstance(node, ast.Name):
        node = only_value(node, home) or node
    given = written(node.func, home) if isinstance(node, ast.Call) and isinstance(node.func, _NAMES) else None
    maker = next((one for name in given.names if (one := api.union().find(name))), None) if given is not None else None
    picks = maker.fact.trait("picks") if maker is not None else None
    return Meant((picks.partition("|")[0],), True, True) if picks else None


def only_value(node: ast.Name, home: Resolver) -> ast.expr | None:
    """What a variable is set to, where that happens once."""
    scope, _ = home.model.at(node.lineno)
    bound = next((around.bindings[node.id] for around in scope.chain() if node.id in around.bindings), [])
    value = bound[0].node if len(bound) == 1 and bound[0].kind == "value" else None
    return value if isinstance(value, ast.expr) else None


def is_super(node: ast.expr) -> bool:
    """`super()` or `super(Class, self)`."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def class_around(node: ast.expr, home: Resolver) -> ast.ClassDef | None:
    """The class whose method an expression stands in."""
    function = home.model.at(node.lineno)[0].function
    owner = function.parent.node if function is not None and function.parent is not None else None
    return owner if isinstance(owner, ast.ClassDef) else None


def own_member(home: Resolver, node: ast.ClassDef | None, name: str, itself: bool) -> bool:
    """Whether a class of the repository, or a base of it there, gives a member itself; a base outside may."""
    for own in _own_classes(home, node) if node is not None else ():
        if own is None:
            return True
        where, cls = own
        if itself or cls is not node:
            scopes = [where.model.functions[item] for item in cls.body if item in where.model.functions]
            if name in where.model.classes[cls].bindings or any(f"self.{name}" in scope.bindings for scope in scopes):
                return True
    return False


def _own_classes(home: Resolver, node: ast.ClassDef) -> Iterator[tuple[Resolver, ast.ClassDef] | None]:
    """A class of the repository and its bases there; None for one that is neither there nor Megatron's."""
    waiting = [(home, node)]
    for where, cls in waiting:
        yield where, cls
        for base in cls.bases:
            ref = where.outside(cls).expr(base)
            if ref is not None and ref.home is not None and isinstance(ref.node, ast.ClassDef):
                if len(waiting) > _MOST_BASES:
                    yield None
                    return
                waiting.append((ref.home, ref.node))
                continue
            plain = base.value if isinstance(base, ast.Subscript) else base  # `Generic[T]`
            if (ref is None or not ref.is_core) and leaf_of(plain) not in _PLAIN:
                yield None


def built(ref: Ref) -> Meant | None:
    """A class of the repository that leaves its constructor to Megatron's."""
    if ref.kind != "class" or ref.home is None or not isinstance(ref.node, ast.ClassDef):
        return None
    if any(own_member(ref.home, ref.node, name, True) for name in ("__init__", "__new__")):
        return None
    fields = {
        item.target.id
        for own in _own_classes(ref.home, ref.node)
        for item in (own[1].body if own is not None else ())
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }
    return Meant((ref.name,), True, True, 0, frozenset(fields))
