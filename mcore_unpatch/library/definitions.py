"""What one module of a library defines: a fact for each name that it, its classes and their methods bind."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.library import digests
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.syntax import (
    Function,
    Nodes,
    annotated,
    bound_names,
    default_text,
    dotted,
    flat,
    leaf_of,
    names_in,
    parameters_of,
    returned,
    source_of,
    statements,
)

# Where what a method puts on `self` comes from, the telling ones first.
ORIGINS = SPEC, ARGUMENT, BUILT, MADE = ("spec", "argument", "built", "made")
STATE = "state"
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
# What a text names in the place of something: `Deprecated: use other instead`, `is replaced by other`.
_SUCCESSOR = re.compile(
    r"(?:\b(?:use|using)\s+[`'\"]*([A-Za-z_][\w.]*\w)[`'\"]*(?:\(\))?[`'\"]*\s+instead|"
    r"\b(?:replaced|superseded)\s+by\s+[`'\"]*([A-Za-z_][\w.]*\w)|"
    r"\b(?:renamed|moved)\s+to\s+[`'\"]*([A-Za-z_][\w.]*\w)|"
    r"\bdeprecated\b[^.]{0,40}\bin favou?r of\s+[`'\"]*([A-Za-z_][\w.]*\w))",
    re.IGNORECASE,
)
_PLAIN = {"typing", "collections", "dataclasses", "abc", "__future__"}


class Body:
    """A function of a module or a method of a class."""

    __slots__ = ("name", "node", "nodes", "owner")

    def __init__(self, name: str, owner: str, node: Function) -> None:
        self.name, self.owner, self.node = name, owner, node
        self.nodes = Nodes([node])


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
        typed = [node for node in tree.body if isinstance(node, ast.If) and leaf_of(node.test) == "TYPE_CHECKING"]
        bound = bound_names([item for node in tree.body for item in ([node] if node not in typed else node.orelse)])[1]
        self._typed = bound_names([item for node in typed for item in node.body])[1] - bound
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
        marks = ["optional"] * (leaf in self._optional) + ["typing"] * (leaf in self._typed)
        name = f"{self.name}.{leaf}"
        known = self.facts.get(name)
        if known is not None and known.kind in ("function", "class") and fact.kind not in ("function", "class"):
            return  # the fallback of a definition: `X = None` where an import failed
        self.facts[name] = Fact(fact.kind, fact.detail, (*fact.traits, *marks), fact.digest, fact.statements)

    def _take(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                body = Body(f"{self.name}.{node.name}", "", node)
                fact, known = self._function(body), self.facts.get(body.name)
                if known is not None and known.kind == "function" and node not in self.tree.body:
                    # One of several, by what is installed: the others are often no more than a stand-in.
                    longest = max(known, fact, key=lambda either: len(either.statements))
                    fact = replace(longest, digest=digests.digest_of(known.digest + fact.digest))
                self._put(node.name, fact)
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
                for leaf in (leaf for target in targets for leaf in names_in(target)):
                    own = self.facts.get(f"{self.name}.{leaf}", Fact("value"))
                    constant = all(isinstance(item, ast.Constant) for item in flat(value))
                    if not (constant and own.kind == "import" and own.detail.startswith(f"{self._top}.")):
                        # Else `None` or `None, None` or `False`, which stands in for an import that failed.
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
        traits = [word for decorator in node.decorator_list if (word := _DECORATORS.get(leaf_of(decorator)))]
        traits += [f"by:{leaf_of(one)}" for one in node.decorator_list if leaf_of(one) not in _DECORATORS][:1]
        self._given[body.name] = returned(body.nodes)
        refusals = [one for one in body.nodes.of(ast.Raise, ast.Assert) if one not in node.body]  # of some calls alone
        refused = {id(part) for refusal in refusals for part in ast.walk(refusal)}
        words = (one for one in body.nodes.of(ast.Constant) if isinstance(one.value, str) and id(one) not in refused)
        told = " ".join(text.value for text in words)
        traits += [f"says:{name}" for name in _successors(told)][:1]
        if texts := annotated(node.returns):
            traits.append(f"type:@{'|'.join(texts)}")
        if picked := _picked(body.nodes):
            traits.append(f"picks:@{'|'.join(picked)}")
        if other := _handed_all(body):
            traits.append(f"whole:@{other}")
        traits += [f"behind:{switch}={name}" for switch, name in _read_behind(node)]
        parts = digests.parts(node, self._top)
        of_body = (digests.digest_of(parts), digests.statements_of(parts))
        return Fact("function", parameters_of(node), tuple(traits), *of_body)

    def _class(self, node: ast.ClassDef) -> None:
        name = f"{self.name}.{node.name}"
        marks = ["dataclass"] if any(leaf_of(decorator) == "dataclass" for decorator in node.decorator_list) else []
        marks += [f"says:{other}" for other in _successors(ast.get_docstring(node) or "")[:1]]
        fields: list[str] = []
        pieces = [digests.head(node, self._top)]
        attributes: dict[str, dict[str, str]] = {}
        field = ""  # the one above
        for item in statements(node.body):
            if isinstance(item, ast.Expr) and field and isinstance(text := getattr(item.value, "value", None), str):
                told = tuple(f"says:{other}" for other in _successors(text)[:1])
                known = self.facts[f"{name}.{field}"]
                self.facts[f"{name}.{field}"] = replace(known, traits=(*known.traits, *told))
            field = item.target.id if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) else ""
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
                        held = attributes.setdefault(attribute, {})
                        for key, word in words.items():
                            if key not in held or (key == "from" and item.name == "__init__"):
                                held[key] = word
                case ast.AnnAssign(target=ast.Name(id=leaf), annotation=annotation, value=value):
                    texts = annotated(annotation)
                    marked = [f"type:@{'|'.join(texts)}"] if texts else []
                    marked += ["callable"] if self._callables.intersection(texts) else []
                    default, is_argument = _of_field(value)
                    plain = ast.AnnAssign(item.target, annotation, default, 1)
                    self.facts[f"{name}.{leaf}"] = Fact("value", "", tuple(marked), self._digest(plain))
                    if "ClassVar" not in texts and is_argument:
                        fields.append(leaf + default_text(default))
                case ast.Assign(targets=targets):
                    for leaf in (leaf for target in targets for leaf in names_in(target)):
                        keys = _keys(leaf, node) if isinstance(item.value, ast.Dict) and not item.value.keys else []
                        told = (f"keys:{','.join(keys)}",) if keys else ()
                        self.facts[f"{name}.{leaf}"] = Fact("value", "", told, self._digest(item))
                case ast.ClassDef():
                    self.facts[f"{name}.{item.name}"] = Fact("class", " ".join(filter(None, map(dotted, item.bases))))
        inits = [item for item in node.body if getattr(item, "name", "") in ("__init__", "__post_init__")]
        always = {name for init in inits if isinstance(init, Function) for name in _always_set(init.body)}
        for attribute, words in attributes.items():
            traits = tuple(f"{key}:{word}" if word else key for key, word in words.items())
            traits += () if attribute in always else ("maybe",)
            own = self.facts.get(f"{name}.{attribute}")
            if own is None:
                self.facts[f"{name}.{attribute}"] = Fact("attribute", "", traits)
            elif own.kind == "value":
                self.facts[f"{name}.{attribute}"] = Fact("value", "", (*own.traits, *traits), own.digest)
        if fields:
            marks.append(f"fields:{','.join(fields)}")
        named = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
        bases = " ".join(filter(None, map(dotted, named)))
        self._put(node.name, Fact("class", bases, tuple(marks), digests.digest_of(b"".join(pieces))))
        self.classes.append((name, node))

    def _on_self(self, body: Body) -> dict[str, dict[str, str]]:
        """What a method puts on `self`: from where, which class it builds, which class its annotation names."""
        method = body.node
        spec = method.args
        given = {arg.arg: annotated(arg.annotation) for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
        attributes: dict[str, dict[str, str]] = {}
        ors = [one for one in body.nodes.of(ast.Assign) if isinstance(one.value, ast.BoolOp)]  # `given.part or Default`
        ours = [assignment for assignment in ors if "submodules" in dotted(assignment.value.values[0])]
        chosen = {dotted(target) for assignment in ours for target in assignment.targets}
        for node in body.nodes.of(ast.Assign, ast.AnnAssign):
            value: ast.expr | None = node.value
            texts = annotated(node.annotation) if isinstance(node, ast.AnnAssign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            for target in (inner for outer in targets for inner in flat(outer)):
                if not isinstance(target, ast.Attribute) or dotted(target.value) != "self":
                    continue
                words = attributes.setdefault(target.attr, {})
                if isinstance(value, ast.Name):
                    texts = texts or given.get(value.id, [])
                if texts:
                    words["type"] = f"@{'|'.join(texts)}"
                    if self._callables.intersection(texts):
                        words["callable"] = ""
                if len(targets) == 1 and target is targets[0] and value is not None:
                    origin = _origin(value, set(given), chosen - {""})
                    if origin and ORIGINS.index(origin) <= ORIGINS.index(words.get("from", MADE).partition(":")[0]):
                        words["from"] = f"{origin}:{method.name}"
                    if isinstance(value, ast.Call) and (called := dotted(value.func)):
                        opaque = called.rpartition(".")[2] in _OPAQUE
                        if not opaque and (other := words.get("builds")) and other != f"@{called}":
                            words["several"] = f"{words.get('several', other)}|{called}"  # one of several classes
                        words["builds"] = "" if opaque else f"@{called}"
                        if slot := slot_of(value):
                            words["slot"] = slot
        return attributes


def _always_set(body: list[ast.stmt]) -> set[str]:
    """The attributes of `self` that some statements set in any case."""
    always: set[str] = set()
    for node in body:
        match node:
            case ast.Assign(targets=targets):
                stored = [inner for target in targets for inner in flat(target)]
                always |= {one.attr for one in stored if isinstance(one, ast.Attribute) and dotted(one.value) == "self"}
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=ast.expr()):
                always.add(name)
            case ast.If():
                always |= _always_set(node.body) & _always_set(node.orelse)
            case ast.With() | ast.Try():
                always |= _always_set(node.body)
    return always


def _successors(text: str) -> list[str]:
    """The names that a text says to use instead."""
    found = _SUCCESSOR.findall(text) if "instead" in text or " by " in text or " to " in text or " of " in text else []
    return [name for names in found for name in names if name]


def _of_field(value: ast.expr | None) -> tuple[ast.expr | None, bool]:
    """What a field of a dataclass holds by default, `0` for `field(default=0, ...)`; and whether it is an argument."""
    if not isinstance(value, ast.Call) or leaf_of(value) != "field":
        return value, True
    given = {word.arg: word.value for word in value.keywords}
    return given.get("default", given.get("default_factory")), getattr(given.get("init"), "value", True) is not False


def _keys(attribute: str, owner: ast.ClassDef) -> list[str]:
    """The keys that the methods of a class write into a dict of the class; none where one is computed."""
    keys = []
    for method in (item for item in owner.body if isinstance(item, Function)):
        nodes = list(ast.walk(method))
        held = [one for one in nodes if isinstance(one, ast.Assign) and getattr(one.value, "attr", "") == attribute]
        names = {dotted(target) for assignment in held for target in assignment.targets}
        for node in nodes:
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                if dotted(node.value) in names or getattr(node.value, "attr", "") == attribute:
                    keys.append(getattr(node.slice, "value", None))
    return sorted({str(key) for key in keys}) if all(isinstance(key, str) and "," not in key for key in keys) else []


def _origin(value: ast.expr, given: set[str], chosen: set[str]) -> str:
    """What an attribute is made from; a spec and an argument go before a class that is built by name.

    chosen: variables that hold the class which a spec names.
    """
    match value:
        case ast.Constant(value=None):
            return ""
        case ast.Name(id=name) if name in given:
            return ARGUMENT
        case ast.IfExp(body=body, orelse=orelse):
            kinds = {_origin(branch, given, chosen) for branch in (body, orelse)} - {""}
            return next((origin for origin in ORIGINS if origin in kinds), "")
        case ast.Call(func=function):
            path = dotted(function)
            leaf, root = path.rpartition(".")[2], path.partition(".")[0]
            if leaf == "build_module" or "submodules" in path or "spec" in path.lower() or path in chosen:
                return SPEC
            named = root != "self" and root not in given and leaf[:1].isupper() and leaf not in _COLLECTIONS
            return BUILT if named else MADE
    return MADE


def slot_of(call: ast.Call) -> str:
    """The field of a `...Submodules` that `build_module(submodules.field, ...)` or `submodules.field(...)` builds."""
    first = call.args[0] if leaf_of(call.func) == "build_module" and call.args else call.func
    path = dotted(first)
    return path.rpartition(".")[2] if "submodules" in path.rpartition(".")[0] else ""


def _read_behind(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, str]]:
    """Parameters that are read only where another one is true: behind `if not other: ...; return`."""
    spec = function.args
    optional = [*spec.args[len(spec.args) - len(spec.defaults) :], *spec.kwonlyargs]
    left = {parameter.arg for parameter in optional}
    for statement in function.body:
        left -= {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        match statement:
            case ast.If(
                test=ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=switch)), body=[*_, ast.Return() | ast.Raise()]
            ) if left and switch in {parameter.arg for parameter in (*spec.args, *spec.kwonlyargs)}:
                yield from ((switch, name) for name in sorted(left))
                return


def _handed_all(body: Body) -> str:
    """The one function that gets all that is passed, of a function that takes `*args, **kwargs` and nothing else."""
    spec = body.node.args
    if spec.posonlyargs or spec.args or spec.kwonlyargs or spec.vararg is None or spec.kwarg is None:
        return ""
    given = f"(*{spec.vararg.arg}, **{spec.kwarg.arg})"
    whole = [node for node in body.nodes.of(ast.Call) if ast.unparse(node) == f"{ast.unparse(node.func)}{given}"]
    return dotted(whole[0].func) if len(whole) == 1 else ""


def _picked(nodes: Nodes) -> list[str]:
    """The names that a function returns, as they are or by a variable: it may pick one of several functions."""
    own = nodes.own
    picked: list[str] = []
    for node in own.of(ast.Return):
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        picked += [dotted(one.value) for one in own.of(ast.Assign) if dotted(one.targets[0]) == name] or [name]
    return list(dict.fromkeys(picked)) if len(picked) > 1 and all(picked) else []
