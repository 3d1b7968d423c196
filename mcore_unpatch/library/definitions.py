"""What one module of a library defines: a fact for each name that it, its classes and their methods bind."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from typing import Any

from mcore_unpatch.library import digests
from mcore_unpatch.library.fact import Fact

Function = ast.FunctionDef | ast.AsyncFunctionDef
# Where what a method puts on `self` comes from, the telling ones first.
ORIGINS = SPEC, ARGUMENT, BUILT, MADE = ("spec", "argument", "built", "made")
STATE = "state"
# Around the one class that matters in an annotation: `Optional[X]`, `list[X]`.
_CONTAINERS = {"Optional", "Union", "List", "list", "Sequence", "Iterable", "Tuple", "tuple"}
_COLLECTIONS = {"ModuleList", "ModuleDict", "Sequential"}
# What builds a submodule without naming its class: the attribute is known, its class is not.
_OPAQUE = {"build_module", "checkpoint_wrapper", *_COLLECTIONS}
_DECORATORS = {
    "property": "property",
    "cached_property": "property",
    "setter": "property",
    "staticmethod": "static",
    "classmethod": "class",
    "abstractmethod": "abstract",
    "contextmanager": "context",
    "overload": "overload",
}
_PLAIN = {"typing", "collections", "dataclasses", "abc", "__future__"}


def dotted(node: ast.AST) -> str:
    """`a.b.c` as text; empty for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def source_of(node: ast.ImportFrom, package: str) -> str:
    """The module that a `from` import names."""
    above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
    return ".".join([*above, *filter(None, [node.module])])


def statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Every statement that runs when a module or class body runs, also below `if`, `try` and `with`."""
    for node in body:
        if isinstance(node, ast.stmt):
            yield node
        if isinstance(node, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            for field in ("body", "handlers", "orelse", "finalbody"):
                yield from statements(getattr(node, field, ()))


def parameters_of(function: Function | ast.Lambda) -> str:
    """The parameter list as one line: names, `=` and a plain default behind one, `/`, `*`, `*name` and `**name`."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    defaults = [*[None] * (len(positional) - len(spec.defaults)), *spec.defaults]
    words = [arg.arg + _default(default) for arg, default in zip(positional, defaults, strict=True)]
    if spec.posonlyargs:
        words.insert(len(spec.posonlyargs), "/")
    if spec.vararg:
        words.append(f"*{spec.vararg.arg}")
    elif spec.kwonlyargs:
        words.append("*")
    words += [arg.arg + _default(default) for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        words.append(f"**{spec.kwarg.arg}")
    return " ".join(words)


def _default(node: ast.expr | None) -> str:
    if node is None:
        return ""
    value = node.value if isinstance(node, ast.Constant) else ...
    if isinstance(value, str):
        return f"={value!r}" if value.isidentifier() else "="
    return f"={value}" if isinstance(value, bool | int | float | None) else "="


def own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, those of functions and classes within it left out."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)


def given_counts(function: Function | ast.Lambda) -> frozenset[int]:
    """How many values the `return a, b` statements of a function give; 0 stands for one that is not evident."""
    if isinstance(function, ast.Lambda):
        return frozenset({_count(function.body)})
    return frozenset(0 if isinstance(one, str) else one for one in _counts(Nodes(own_nodes(function), within=False)))


def _counts(nodes: Nodes) -> frozenset[int | str]:
    """The same, with the name of a function whose result is returned as it is."""
    if ast.Yield in nodes or ast.YieldFrom in nodes:
        return frozenset({0})
    found: set[int | str] = set()
    for node in nodes.of(ast.Return):
        match node.value:
            case ast.Name(id=name):
                found |= _held(name, nodes)
            case ast.Call(func=ast.Name(id=name)):
                found.add(name)
            case None:
                pass
            case value:
                found.add(_count(value))
    return frozenset(found)


def _held(name: str, nodes: Nodes) -> set[int]:
    """How many values a variable holds that is returned: where each assignment to it is a plain tuple."""
    given = [node.value for node in nodes.of(ast.Assign) for target in node.targets if name in _names(target)]
    changed = (target for node in nodes.of(ast.AugAssign, ast.For) if name in _names(target := node.target))
    return {_count(value) for value in given} if given and not any(changed) else {0}


def _count(value: ast.expr | None) -> int:
    if isinstance(value, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in value.elts):
        return len(value.elts)
    return 0


# What a walk does not go into: contexts and operators say nothing, and what annotations name is used for nothing.
_SKIPPED = {"ctx", "op", "ops", "annotation", "returns", "type_comment", "type_params"}


@cache
def _fields(kind: type[ast.AST]) -> tuple[str, ...]:
    return tuple(name for name in kind._fields if name not in _SKIPPED)


class Nodes(dict[type, list[Any]]):
    """The nodes of a piece of code by their type, outer ones first: the code is walked once."""

    def __init__(self, roots: Iterable[ast.AST], stop: Container[ast.AST] = (), within: bool = True) -> None:
        super().__init__()
        waiting = list(roots)
        for node in list(waiting) if not within else waiting:
            self.setdefault(type(node), []).append(node)
            if not within:
                continue
            if node in stop:
                waiting += node.decorator_list  # type: ignore[attr-defined]
                continue
            for name in _fields(type(node)):  # type: ignore[arg-type]
                value = getattr(node, name, None)
                if value.__class__ is list:
                    waiting += [item for item in value if isinstance(item, ast.AST)]
                elif isinstance(value, ast.AST):
                    waiting.append(value)

    def of(self, *kinds: type) -> Iterator[Any]:
        """The nodes of some types."""
        return chain.from_iterable(self.get(kind, ()) for kind in kinds)


class Body:
    """A function of a module or a method of a class."""

    __slots__ = ("name", "node", "nodes", "owner")

    def __init__(self, name: str, owner: str, node: Function) -> None:
        self.name, self.owner, self.node = name, owner, node
        self.nodes = Nodes([node])

    @property
    def given_counts(self) -> frozenset[int | str]:
        """As `_counts` tells."""
        within = sum(1 for _ in self.nodes.of(ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
        return _counts(Nodes(own_nodes(self.node), within=False) if within > 1 else self.nodes)


class ModuleFacts:
    """The facts of one module. Names of other modules stand in traits as they are written, behind `@`."""

    def __init__(self, name: str, is_package: bool, tree: ast.Module, top: str) -> None:
        self.name, self.tree, self._top = name, tree, top
        self.package = name if is_package else name.rpartition(".")[0]
        self.facts: dict[str, Fact] = {name: Fact("module")}
        self.functions: list[Body] = []
        self.classes: list[tuple[str, ast.ClassDef]] = []
        self._callables = {"Callable"}  # and the names that this module gives to such types
        self._given: dict[str, frozenset[int | str]] = {}  # how many values functions return, or whose result
        always, every = bound_names(tree.body)
        self._optional = every - always
        for node in statements(tree.body):
            self._take(node)
        for body in self.functions:
            if count := self._gives(body.name):
                known = self.facts[body.name]
                self.facts[body.name] = replace(known, traits=(*known.traits, f"gives:{count}"))
        # What the library itself rebinds with `global` is state, not API: setting it is no patch.
        rebound = (node.names for body in self.functions for node in body.nodes.of(ast.Global))
        for leaf in {leaf for names in rebound for leaf in names}:
            known = self.facts.get(f"{name}.{leaf}", Fact("value"))
            self.facts[f"{name}.{leaf}"] = replace(known, traits=(*known.traits, STATE))

    def _put(self, leaf: str, fact: Fact) -> None:
        marks = ["optional"] if leaf in self._optional else []
        name = f"{self.name}.{leaf}"
        known = self.facts.get(name)
        if known is not None and known.kind in ("function", "class") and fact.kind not in ("function", "class"):
            return  # the fallback of a definition: `X = None` where an import failed
        self.facts[name] = Fact(fact.kind, fact.detail, (*fact.traits, *marks), fact.digest, fact.statements)

    def _take(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                body = Body(f"{self.name}.{node.name}", "", node)
                self._put(node.name, self._function(body))
                self.functions.append(body)
            case ast.ClassDef():
                self._class(node)
            case ast.Import():
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._put(bound, Fact("import", alias.name if alias.asname else bound))
            case ast.ImportFrom():
                source = source_of(node, self.package)
                if source not in _PLAIN:
                    for alias in node.names:
                        self._put(alias.asname or alias.name, Fact("import", f"{source}.{alias.name}"))
            case ast.Assign(targets=targets, value=value):
                traits = (f"alias:@{path}",) if (path := dotted(value)) else ()
                if isinstance(value, ast.Call) and (path := dotted(value.func)):
                    traits = (f"made:@{path}",)  # by which class, once that is resolved
                if isinstance(value, ast.Subscript) and annotated(value) == ["Callable"]:
                    self._callables.update(target.id for target in targets if isinstance(target, ast.Name))
                for target in targets:
                    for leaf in _names(target):
                        self._put(leaf, Fact("value", "", traits, self._digest(node)))
            case ast.AnnAssign(target=ast.Name(id=leaf)):
                self._put(leaf, Fact("value", "", (), self._digest(node)))

    def _gives(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """How many values a function gives: each `return` as many, also where it hands on what another one gives."""
        told = self._given.get(name, frozenset({0})) if name not in seen else frozenset({0})
        counts = {self._gives(f"{self.name}.{one}", seen | {name}) if isinstance(one, str) else one for one in told}
        return counts.pop() if len(counts) == 1 else 0

    def _digest(self, node: ast.stmt) -> bytes:
        return digests.digest_of(digests.parts(node, self._top))

    def _function(self, body: Body) -> Fact:
        node = body.node
        traits = [word for one in node.decorator_list if (word := _DECORATORS.get(_leaf(one)))]
        known = {"staticmethod", "classmethod", *_DECORATORS}
        traits += [f"by:{_leaf(one)}" for one in node.decorator_list if _leaf(one) not in known][:1]
        self._given[body.name] = body.given_counts
        if texts := annotated(node.returns):
            traits.append(f"type:@{'|'.join(texts)}")
        traits += [f"hands:{line}" for line in _handed(body)]
        parts = digests.parts(node, self._top)
        return Fact(
            "function", parameters_of(node), tuple(traits), digests.digest_of(parts), digests.statements_of(parts)
        )

    def _class(self, node: ast.ClassDef) -> None:
        name = f"{self.name}.{node.name}"
        marks = ["dataclass"] if any(_leaf(one) == "dataclass" for one in node.decorator_list) else []
        fields: list[str] = []
        pieces = [digests.head(node, self._top)]
        attributes: dict[str, dict[str, str]] = {}
        for item in statements(node.body):
            pieces.append(b"" if isinstance(item, Function) else self._digest(item))
            match item:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    body = Body(f"{name}.{item.name}", name, item)
                    fact = self._function(body)
                    pieces.append(fact.digest)
                    if "overload" not in fact.traits:
                        self.facts[f"{name}.{item.name}"] = fact
                        self.functions.append(body)
                    for attribute, words in self._on_self(body).items():
                        known = attributes.setdefault(attribute, {})
                        for key, word in words.items():
                            if key not in known or (key == "from" and item.name == "__init__"):
                                known[key] = word
                case ast.AnnAssign(target=ast.Name(id=leaf), annotation=annotation, value=value):
                    texts = annotated(annotation)
                    told = [f"type:@{'|'.join(texts)}"] if texts else []
                    told += ["callable"] if self._callables.intersection(texts) else []
                    default = _default_of_field(value)
                    plain = ast.AnnAssign(item.target, annotation, default, 1)
                    self.facts[f"{name}.{leaf}"] = Fact("value", "", tuple(told), self._digest(plain))
                    if "ClassVar" not in texts and not _is_no_field(value):
                        fields.append(leaf + _default(default))
                case ast.Assign(targets=targets):
                    for leaf in (leaf for target in targets for leaf in _names(target)):
                        self.facts[f"{name}.{leaf}"] = Fact("value", "", (), self._digest(item))
                case ast.ClassDef():
                    self.facts[f"{name}.{item.name}"] = Fact("class", " ".join(filter(None, map(dotted, item.bases))))
        for attribute, words in attributes.items():
            traits = tuple(f"{key}:{word}" if word else key for key, word in words.items())
            own = self.facts.get(f"{name}.{attribute}")
            if own is None:
                self.facts[f"{name}.{attribute}"] = Fact("attribute", "", traits)
            elif own.kind == "value":
                self.facts[f"{name}.{attribute}"] = Fact("value", "", (*own.traits, *traits), own.digest)
        if fields:
            marks.append(f"fields:{','.join(fields)}")
        bases = " ".join(filter(None, (_base(base) for base in node.bases)))
        self._put(node.name, Fact("class", bases, tuple(marks), digests.digest_of(b"".join(pieces))))
        self.classes.append((name, node))

    def _on_self(self, body: Body) -> dict[str, dict[str, str]]:
        """What a method puts on `self`: from where, which class it builds, which class its annotation names."""
        method = body.node
        spec = method.args
        given = {arg.arg: annotated(arg.annotation) for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
        found: dict[str, dict[str, str]] = {}
        for node in body.nodes.of(ast.Assign, ast.AnnAssign):
            value: ast.expr | None = node.value
            texts = annotated(node.annotation) if isinstance(node, ast.AnnAssign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            for target in (inner for one in targets for inner in _flat(one)):
                if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)):
                    continue
                if target.value.id != "self":
                    continue
                words = found.setdefault(target.attr, {})
                if isinstance(value, ast.Name):
                    texts = texts or given.get(value.id, [])
                if texts:
                    words["type"] = f"@{'|'.join(texts)}"
                    if self._callables.intersection(texts):
                        words["callable"] = ""
                if len(targets) == 1 and target is targets[0] and value is not None:
                    origin = _origin(value, set(given))
                    if origin and ORIGINS.index(origin) <= ORIGINS.index(words.get("from", MADE).partition(":")[0]):
                        words["from"] = f"{origin}:{method.name}"
                    if isinstance(value, ast.Call) and (called := dotted(value.func)):
                        opaque = called.rpartition(".")[2] in _OPAQUE
                        if not opaque and (other := words.get("builds")) and other != f"@{called}":
                            words["several"] = f"{words.get('several', other)}|{called}"  # one of several classes
                        words["builds"] = "" if opaque else f"@{called}"
                        if slot := _slot(value):
                            words["slot"] = slot
        return found


def annotated(node: ast.expr | None) -> list[str]:
    """The classes an annotation names, as they are written."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            node = ast.parse(node.value, mode="eval").body
        except (SyntaxError, ValueError):
            return []
    if isinstance(node, ast.BinOp):
        return [*annotated(node.left), *annotated(node.right)]
    if isinstance(node, ast.Tuple):
        return [name for element in node.elts for name in annotated(element)]
    if isinstance(node, ast.Subscript):
        outer = dotted(node.value).rpartition(".")[2]
        return annotated(node.slice) if outer in _CONTAINERS else [outer]
    return [name] if node is not None and (name := dotted(node)) else []


def bound_names(body: list[ast.stmt]) -> tuple[set[str], set[str]]:
    """The names that statements bind whatever happens, and all that they may bind."""
    always: set[str] = set()
    every: set[str] = set()
    for node in body:
        ways: list[list[ast.stmt]] = []
        match node:
            case ast.If(body=then, orelse=orelse):
                ways = [then, orelse]
            case ast.Try(body=then, handlers=handlers, orelse=orelse, finalbody=last):
                ways = [[*then, *orelse, *last], *([*handler.body, *last] for handler in handlers)]
            case ast.With(body=then):
                ways = [then]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                always.add(name)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                always |= {alias.asname or alias.name.partition(".")[0] for alias in names}
            case ast.Assign(targets=targets):
                always |= {leaf for target in targets for leaf in _names(target)}
            case ast.AnnAssign(target=target):
                always |= set(_names(target))
        known = [bound_names(way) for way in ways if not (way and isinstance(way[-1], ast.Raise))]
        always |= set.intersection(*(sure for sure, _ in known)) if known else set()
        every |= set().union(*(may for _, may in known))
    return always, always | every


def _flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from _flat(item)
    else:
        yield target


def _names(target: ast.expr) -> list[str]:
    return [item.id for item in _flat(target) if isinstance(item, ast.Name)]


def _leaf(node: ast.expr) -> str:
    return dotted(node.func if isinstance(node, ast.Call) else node).rpartition(".")[2]


def _base(node: ast.expr) -> str:
    return dotted(node.value if isinstance(node, ast.Subscript) else node)


def _is_no_field(value: ast.expr | None) -> bool:
    keywords = value.keywords if isinstance(value, ast.Call) and _leaf(value) == "field" else []
    return any(word.arg == "init" and getattr(word.value, "value", True) is False for word in keywords)


def _default_of_field(value: ast.expr | None) -> ast.expr | None:
    """What a field of a dataclass holds by default: `field(default=0, metadata=...)` is plain `0`."""
    keywords = value.keywords if isinstance(value, ast.Call) and _leaf(value) == "field" else None
    if keywords is None:
        return value
    return next((word.value for word in keywords if word.arg in ("default", "default_factory")), None)


def _origin(value: ast.expr, given: set[str]) -> str:
    """What an attribute is made from; a spec and an argument go before a class that is built by name."""
    match value:
        case ast.Constant(value=None):
            return ""
        case ast.Name(id=name) if name in given:
            return ARGUMENT
        case ast.IfExp(body=body, orelse=orelse):
            kinds = {_origin(body, given), _origin(orelse, given)} - {""}
            return next((origin for origin in ORIGINS if origin in kinds), "")
        case ast.Call(func=function):
            path = dotted(function)
            leaf, root = path.rpartition(".")[2], path.partition(".")[0]
            if leaf == "build_module" or "submodules" in path or "spec" in path.lower():
                return SPEC
            named = root != "self" and root not in given and leaf[:1].isupper() and leaf not in _COLLECTIONS
            return BUILT if named else MADE
    return MADE


def _slot(call: ast.Call) -> str:
    """The field of a `...Submodules` that `build_module(submodules.field, ...)` or `submodules.field(...)` builds."""
    first = call.args[0] if _leaf(call.func) == "build_module" and call.args else call.func
    path = dotted(first)
    return path.rpartition(".")[2] if "submodules" in path.rpartition(".")[0] else ""


def _handed(body: Body) -> Iterator[str]:
    """What a function calls its own parameters with: `name=2+keyword,keyword`."""
    spec = body.node.args
    given = {arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)} - {"self", "cls"}
    seen = set()
    for node in body.nodes.of(ast.Call):
        if isinstance(node.func, ast.Name) and node.func.id in given:
            keywords = ",".join(word.arg or "**" for word in node.keywords)
            star = "*" if any(isinstance(arg, ast.Starred) for arg in node.args) else ""
            seen.add(f"{node.func.id}={len(node.args)}{star}+{keywords}")
    return iter(sorted(seen))
