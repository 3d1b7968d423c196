"""Which functions of a library make specs, and which classes these may name: read through whatever they call."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import takewhile

from mcore_unpatch.library.definitions import ModuleFacts
from mcore_unpatch.library.syntax import Nodes, last_attribute, statements

_NOTHING: frozenset[str] = frozenset()


class SpecMakers:
    """The functions of one version, and the providers of backends that they ask for classes."""

    def __init__(self, modules: Iterable[ModuleFacts]) -> None:
        self._functions: dict[str, dict[str, ast.FunctionDef]] = defaultdict(dict)  # by short name, and by module
        self._providers: dict[str, ast.ClassDef] = {}
        self._stands_for: dict[str, set[str]] = defaultdict(set)  # `Norm = FusedNorm`; the defaults of fields
        self._reached: dict[tuple[ast.FunctionDef, frozenset[str]], set[str]] = {}
        for module in modules:
            self._providers |= {node.name: node for _, node in module.classes if node.name.endswith("SpecProvider")}
            for owner, field in ((node.name, field) for _, node in module.classes for field in node.body):
                if owner.endswith("Submodules") and isinstance(field, ast.AnnAssign) and field.value is not None:
                    self._stands_for[owner] |= {one.id for one in ast.walk(field.value) if isinstance(one, ast.Name)}
            for body in module.functions:
                if isinstance(body.node, ast.FunctionDef) and not body.owner:
                    self._functions[body.node.name][module.name] = body.node
            for node in statements(module.tree.body):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                    self._stands_for[last_attribute(node.targets[0])].add(node.value.id)

    def naming(self, parts: Set[str]) -> Iterator[tuple[str, str]]:
        """The functions that make specs, each with those of some parts that these may name, and what is asked for them.

        `flag/Part` is named only where that argument is true, or is not None.
        """
        makers = {name for name in self._functions if "spec" in name or "submodules" in name}
        for short, module, node in ((name, *home) for name in sorted(makers) for home in self._functions[name].items()):
            every = sorted(self._named(node, module) & (parts | makers | self._providers.keys()))
            flags = {flag: self._named(node, module, frozenset([flag])) for flag in self._flags(node) if every}
            told = {part: [f"{flag}/{part}" for flag in flags if part not in flags[flag]] for part in every}
            if not makers.issuperset(told):
                yield f"{module}.{short}", ",".join(word for part in told for word in told[part] or [part])

    def _flags(self, node: ast.FunctionDef) -> list[str]:
        """The arguments of a function, also those that it hands on unseen."""
        handing = [call for call in Nodes([node]).of(ast.Call) if any(word.arg is None for word in call.keywords)]
        others = (other for call in handing for other in self._functions.get(last_attribute(call.func), {}).values())
        unseen = (flag for other in others for flag in _arguments(other) if node.args.kwarg)
        return list(dict.fromkeys([*_arguments(node), *unseen]))

    def _named(self, node: ast.FunctionDef, module: str, off: frozenset[str] = _NOTHING) -> set[str]:
        """What a function reaches, of what methods of providers give only that of those that are asked."""
        reached = (word.split(">") for word in self._reach(node, module, off))
        return {name for *asked, name in reached if self._reached[node, off].issuperset(asked)}

    def _reach(self, function: ast.FunctionDef, module: str, off: frozenset[str] = _NOTHING) -> set[str]:
        """The names and attributes that a function comes by, also in others, where some arguments are false or None.

        What a method of a provider gives is `.method>Class`.
        """
        if (function, off) in self._reached:
            return self._reached[function, off]
        self._reached[function, off] = found = set[str]()  # what a cycle gets to see
        nodes = Nodes([function])
        stored = {name.id for name in nodes.of(ast.Name) if not isinstance(name.ctx, ast.Load)}
        bound = stored.union(_arguments(function)).difference(*(node.names for node in nodes.of(ast.Global)))
        off -= stored  # what is None may get a value
        unseen = off.difference(_arguments(function))
        calls: dict[int, ast.Call] = {}
        for node in (node for part in function.body for node in _run(part, off)):
            if isinstance(node, ast.Call):
                calls[id(node.func)] = node
            elif isinstance(node, ast.Attribute):
                found.add(f".{node.attr}")
            elif isinstance(node, ast.Name) and node.id not in bound:
                homes, call = self._functions.get(node.id, {}), calls.get(id(node))
                for home, other in homes.items() if module not in homes else [(module, homes[module])]:
                    passed = off_in(call, _arguments(other), off, unseen) if call else _NOTHING
                    found |= self._reach(other, home, passed)
                for method in self._providers[node.id].body if node.id in self._providers else ():
                    if isinstance(method, ast.FunctionDef):
                        given = self._reach(method, module)
                        found |= {name if name[0] == "." else f".{method.name}>{name}" for name in given}
                found |= {node.id, *self._stands_for.get(node.id, ())}
        return found


def _run(node: ast.AST, off: Set[str]) -> Iterator[ast.AST]:
    """A node and all below it that may run where some names are false; what is compared or annotated is not put in."""
    parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If | ast.IfExp):
        if (truth := _truth(node.test, off)) is not None:
            way = node.body if truth else node.orelse
            parts = way if isinstance(way, list) else [way]
    elif isinstance(node, ast.AnnAssign):
        parts = filter(None, [node.value])
    elif isinstance(node, ast.Compare) or (isinstance(node, ast.Call) and last_attribute(node.func) == "isinstance"):
        parts = ()
    yield node
    for part in parts:
        yield from _run(part, off)


def _truth(test: ast.expr, off: Set[str]) -> bool | None:
    """Whether a test of one name holds where some are false or None; None where that cannot be told."""
    match test:
        case ast.Name(id=name) if name in off:
            return False
        case ast.Compare(left=ast.Name(id=name), ops=[by], comparators=[ast.Constant(value=None)]) if name in off:
            return isinstance(by, ast.Is)
        case ast.BoolOp(op=ast.And(), values=values):
            return False if any(_truth(value, off) is False for value in values) else None
    return None


def off_in(
    call: ast.Call, arguments: Sequence[str], off: Set[str] = _NOTHING, unseen: frozenset[str] = _NOTHING
) -> frozenset[str]:
    """Those of some arguments that a call passes as false or None: plainly, where names are, `unseen` by `**`."""
    values = takewhile(lambda value: not isinstance(value, ast.Starred), call.args)
    given = [*zip(arguments, values, strict=False), *((word.arg or "", word.value) for word in call.keywords)]
    plain = {name: isinstance(value, ast.Constant) and value.value in (False, None) for name, value in given}
    is_off = {name: plain[name] or getattr(value, "id", "") in off for name, value in given}
    handed = unseen.difference(plain) if any(word.arg is None for word in call.keywords) else _NOTHING
    return frozenset(name for name in arguments if is_off.get(name) or name in handed)


def _arguments(function: ast.FunctionDef) -> list[str]:
    return [one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)]
