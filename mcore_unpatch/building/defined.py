"""What one module of a library defines: a fact for each name that it, its classes and their methods bind."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any, NamedTuple

from mcore_unpatch.building.attributes import attributes_of, method_of
from mcore_unpatch.building.written import annotated, default_text, flat, last_of, parameters_of, statements, targets_of
from mcore_unpatch.code.module import Module, inner_scope
from mcore_unpatch.code.syntax import NAMED_FUNCTIONS, last_name, own_nodes, parent_of, spelled, walk
from mcore_unpatch.library import digests
from mcore_unpatch.library.facts import Definition, Entry

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
# What tells how many values a function gives, and what it rebinds.
_TELLING = (ast.Global, ast.Yield, ast.YieldFrom, ast.Return, ast.Assign, ast.AugAssign, ast.For)
_PLAIN = {"typing", "collections", "dataclasses", "abc", "__future__"}


class Body(NamedTuple):
    """A function of a module or a method of a class."""

    name: str
    owner: str
    node: Any


class Defined:
    """The facts of one module. Names of other modules stand in traits as they are written, behind `@`."""

    def __init__(self, module: Module, top: str) -> None:
        self.module, self.name, self._top = module, module.name, top
        self.facts = {self.name: Definition(self.name, Entry(0, "m"))}
        self.bodies: list[Body] = []
        self.classes: list[tuple[str, ast.ClassDef]] = []
        self._callables = {"Callable"}  # and the names that this module gives to such types
        self._rebound: set[str] = set()  # with `global`
        self._given: dict[str, set[int | str]] = {}  # how many values functions return, or whose result
        body = module.tree.body
        always, every = _bound(body)
        self._optional = every - always
        typed = [node for node in body if isinstance(node, ast.If) and last_name(node.test) == "TYPE_CHECKING"]
        bound = _bound([item for node in body for item in ([node] if node not in typed else node.orelse)])[1]
        self._typed = _bound([item for node in typed for item in node.body])[1] - bound
        for node in statements(body):
            self._take(node)
        for one in self.bodies:
            if count := self._gives(one.name):
                self.mark(one.name, f"gives:{count}")
        # What the library itself rebinds with `global` is state, not API: setting it is no patch.
        for name in sorted(self._rebound):
            self.facts.setdefault(name, Definition(name, Entry(0, "v")))
            self.mark(name, "state")

    def mark(self, name: str, *traits: str) -> None:
        """Say more of a name."""
        self.facts[name] = marked(self.facts[name], *traits)

    def _put(self, leaf: str, letter: str, detail: str = "", traits: Iterable[str] = (), digest: str = "") -> None:
        name = f"{self.name}.{leaf}"
        self._put_whole(Definition(name, Entry(0, letter, detail, tuple(traits)), digest))

    def _put_whole(self, made: Definition) -> None:
        leaf, known = made.name.rpartition(".")[2], self.facts.get(made.name)
        if known is not None and known.letter in "fc" and made.letter not in "fc":
            return  # the fallback of a definition: `X = None` where an import failed
        self.facts[made.name] = marked(
            made, *["optional"] * (leaf in self._optional), *["typing"] * (leaf in self._typed)
        )

    def _take(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                body = Body(f"{self.name}.{node.name}", "", node)
                made, known = self._function(body), self.facts.get(body.name)
                if known is not None and known.letter == "f" and parent_of(node) is not self.module.tree:
                    # One of several, by what is installed: the others are often no more than a stand-in.
                    longest = max(known, made, key=lambda either: len(either.statements))
                    made = longest._replace(digest=digests.of_several(known.digest, made.digest))
                self._put_whole(made)
                self.bodies.append(body)
            case ast.ClassDef():
                self._class(node)
            case ast.Import():
                for alias in node.names:
                    bound = alias.asname or alias.name.partition(".")[0]
                    self._put(bound, "i", alias.name if alias.asname else bound)
            case ast.ImportFrom():
                source = self.module.absolute(node.module, node.level)
                for alias in node.names if source not in _PLAIN else ():
                    self._put(alias.asname or alias.name, "i", f"{source}.{alias.name}")
            case ast.Assign(targets=targets, value=value):
                traits = (f"alias:@{path}",) if (path := spelled(value)) else ()
                if isinstance(value, ast.Call) and (path := spelled(value.func)):
                    traits = (f"made:@{path}",)  # by which class, once that is resolved
                if isinstance(value, ast.Subscript) and annotated(value) == ["Callable"]:
                    self._callables.update(target.id for target in targets if isinstance(target, ast.Name))
                constant = all(isinstance(item, ast.Constant) for item in flat(value))
                for leaf in targets_of(node):
                    own = self.facts.get(f"{self.name}.{leaf}")
                    stands_in = own is not None and own.letter == "i" and own.entry.detail.startswith(f"{self._top}.")
                    if not (constant and stands_in):  # `None` or `None, None` or `False`, where an import failed
                        self._put(leaf, "v", "", traits, self._digest(node))
            case ast.AnnAssign(target=ast.Name(id=leaf)):
                self._put(leaf, "v", digest=self._digest(node))

    def _digest(self, node: ast.stmt) -> str:
        return digests.digest_of(digests.parts(node, self._top)).hex()

    # -- functions ---------------------------------------------------------------------------------------------------

    def _function(self, body: Body) -> Definition:
        node = body.node
        decorators = [last_of(one) for one in node.decorator_list]
        traits = [_DECORATORS[one] for one in decorators if one in _DECORATORS]
        traits += [f"by:{one}" for one in decorators if one not in _DECORATORS][:1]
        own = own_nodes(node, *_TELLING)
        self._given[body.name] = _returned(own)
        self._rebound |= {f"{self.name}.{leaf}" for one in own if isinstance(one, ast.Global) for leaf in one.names}
        if texts := annotated(node.returns):
            traits.append(f"type:@{'|'.join(texts)}")
        if picked := _picked(own):
            traits.append(f"picks:@{'|'.join(picked)}")
        if other := _handed_all(node):
            traits.append(f"whole:@{other}")
        parts = digests.parts(node, self._top)
        entry = Entry(0, "f", parameters_of(node), tuple(traits))
        return Definition(body.name, entry, digests.digest_of(parts).hex(), digests.statements_of(parts).hex())

    def _gives(self, name: str, seen: frozenset[str] = frozenset()) -> int:
        """How many values a function gives: each `return` as many, also where it hands on what another one gives."""
        told = self._given.get(name, {0}) if name not in seen else {0}
        counts = {self._gives(f"{self.name}.{one}", seen | {name}) if isinstance(one, str) else one for one in told}
        return counts.pop() if len(counts) == 1 else 0

    # -- classes -----------------------------------------------------------------------------------------------------

    def _class(self, node: ast.ClassDef) -> None:
        name = f"{self.name}.{node.name}"
        traits = ["dataclass"] if any(last_of(decorator) == "dataclass" for decorator in node.decorator_list) else []
        fields: list[str] = []
        pieces = [digests.head(node, self._top)]
        for item in statements(node.body):
            if not isinstance(item, NAMED_FUNCTIONS):
                pieces.append(bytes.fromhex(self._digest(item)))
            match item:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    body = Body(f"{name}.{item.name}", name, item)
                    made = self._function(body)
                    pieces.append(bytes.fromhex(made.digest))
                    if "overload" not in made.entry.traits:
                        self.facts[made.name] = made
                        self.bodies.append(body)
                case ast.AnnAssign(target=ast.Name(id=leaf), annotation=annotation, value=value):
                    texts = annotated(annotation)
                    told = [f"type:@{'|'.join(texts)}"] * bool(texts)
                    told += ["callable"] * bool(self._callables.intersection(texts))
                    default, is_argument = _of_field(value)
                    plain = ast.AnnAssign(item.target, annotation, default, 1)
                    self._member(f"{name}.{leaf}", told, self._digest(plain))
                    if "ClassVar" not in texts and is_argument:
                        fields.append(leaf + default_text(default))
                case ast.Assign(value=value):
                    for leaf in targets_of(item):
                        keys = _keys(leaf, node) if isinstance(value, ast.Dict) and not value.keys else []
                        self._member(f"{name}.{leaf}", [f"keys:{','.join(keys)}"] * bool(keys), self._digest(item))
                case ast.ClassDef():
                    inner = f"{name}.{item.name}"
                    self.facts[inner] = Definition(
                        inner, Entry(0, "c", " ".join(filter(None, map(spelled, item.bases))))
                    )
        for attribute, told in attributes_of(node, self._callables):
            known = self.facts.get(whole := f"{name}.{attribute}")
            if known is None:
                self.facts[whole] = Definition(whole, Entry(0, "a", "", tuple(told)))
            elif known.letter == "v":
                self.mark(whole, *told)
        traits += [f"fields:{','.join(fields)}"] * bool(fields)
        named = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
        bases = " ".join(filter(None, map(spelled, named)))
        self._put(node.name, "c", bases, traits, digests.digest_of(b"".join(pieces)).hex())
        self.classes.append((name, node))

    def _member(self, name: str, traits: Iterable[str], digest: str) -> None:
        self.facts[name] = Definition(name, Entry(0, "v", "", tuple(traits)), digest)


def marked(made: Definition, *traits: str) -> Definition:
    """A definition of which more is said."""
    return made._replace(entry=made.entry._replace(traits=(*made.entry.traits, *traits))) if traits else made


def _of_field(value: ast.expr | None) -> tuple[ast.expr | None, bool]:
    """What a field of a dataclass holds by default, `0` for `field(default=0, ...)`; and whether it is an argument."""
    if not isinstance(value, ast.Call) or last_of(value) != "field":
        return value, True
    given = {word.arg: word.value for word in value.keywords}
    return given.get("default", given.get("default_factory")), getattr(given.get("init"), "value", True) is not False


def _keys(attribute: str, owner: ast.ClassDef) -> list[str]:
    """The keys that the methods of a class write into a dict of the class; none where one is computed."""
    keys = []
    for method in (item for item in owner.body if isinstance(item, NAMED_FUNCTIONS)):
        assigned = [one for one in walk(method) if isinstance(one, ast.Assign) and last_name(one.value) == attribute]
        names = {spelled(target) for one in assigned for target in one.targets}
        for store in inner_scope(method).module.stores:
            target = store.target
            if isinstance(target, ast.Subscript) and method_of(target, owner) is method:
                if spelled(target.value) in names or last_name(target.value) == attribute:
                    keys.append(getattr(target.slice, "value", None))
    return sorted({str(key) for key in keys}) if all(isinstance(key, str) and "," not in key for key in keys) else []


def _handed_all(node: Any) -> str:
    """The one function that gets all that is passed, of a function that takes `*args, **kwargs` and nothing else."""
    spec = node.args
    if spec.posonlyargs or spec.args or spec.kwonlyargs or spec.vararg is None or spec.kwarg is None:
        return ""
    whole = [one for one in walk(node) if isinstance(one, ast.Call) and hands_on(one, spec)]
    return spelled(whole[0].func) if len(whole) == 1 else ""


def hands_on(call: ast.Call, spec: ast.arguments) -> bool:
    """Whether a call is `function(*args, **kwargs)` with just what another function took as these."""
    if spec.vararg is None or spec.kwarg is None or len(call.args) != 1 or len(call.keywords) != 1:
        return False
    [last], [rest] = call.args, call.keywords
    is_star = isinstance(last, ast.Starred) and spelled(last.value) == spec.vararg.arg
    return is_star and rest.arg is None and spelled(rest.value) == spec.kwarg.arg


def _returned(own: list[Any]) -> set[int | str]:
    """How many values each `return` gives, 0 where that is not evident; the name of a function whose result it is."""
    if any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in own):
        return {0}
    counts: set[int | str] = set()
    for one in own:
        match one.value if isinstance(one, ast.Return) else None:
            case ast.Name(id=name):
                counts |= _held(name, own)
            case ast.Call(func=ast.Name(id=name)):
                counts.add(name)
            case None:
                pass
            case value:
                counts.add(_count(value))
    return counts


def _held(name: str, own: list[Any]) -> set[int]:
    """How many values a variable holds that is returned: where each assignment to it is a plain tuple."""
    setting = [one for one in own if isinstance(one, (ast.Assign, ast.AugAssign, ast.For)) and name in targets_of(one)]
    return {_count(one.value) if isinstance(one, ast.Assign) else 0 for one in setting} or {0}


def _count(value: ast.expr) -> int:
    if isinstance(value, ast.Tuple) and not any(isinstance(item, ast.Starred) for item in value.elts):
        return len(value.elts)
    return 0


def _picked(own: list[Any]) -> list[str]:
    """The names that a function returns, as they are or by a variable: it may pick one of several functions."""
    picked: list[str] = []
    assigned = [one for one in own if isinstance(one, ast.Assign)]
    for one in (one for one in own if isinstance(one, ast.Return)):
        name = one.value.id if isinstance(one.value, ast.Name) else ""
        picked += [spelled(to.value) for to in assigned if spelled(to.targets[0]) == name] or [name]
    return list(dict.fromkeys(picked)) if len(picked) > 1 and all(picked) else []


def _bound(body: list[ast.stmt]) -> tuple[set[str], set[str]]:
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
            case ast.Assign() | ast.AnnAssign():
                always |= set(targets_of(node))
        known = [_bound(way) for way in ways if not (way and isinstance(way[-1], ast.Raise))]
        always |= set.intersection(*(sure for sure, _ in known)) if known else set()
        every |= set().union(*(may for _, may in known))
    return always, always | every
