"""What an expression stands for: attributes, calls, subscripts, and the members of Megatron's classes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import partial

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.scanner.names.annotations import annotation
from mcore_unpatch.scanner.names.bindings import (
    bound,
    checked,
    core_name,
    export,
    item,
    lookup,
    module,
    on_name,
    output_layer,
)
from mcore_unpatch.scanner.names.resolver import Handler, Position, Ref, Resolver
from mcore_unpatch.scanner.names.strings import string, strings
from mcore_unpatch.scanner.sources.building import checks
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import Binding, FunctionNode, Scope, last_name, path_text

PASS_THROUGH_METHODS = {"to", "cuda", "cpu", "eval", "train", "half", "bfloat16", "float", "requires_grad_", "copy"}
PASS_THROUGH_CALLS = {"list", "tuple", "reversed", "iter", "next", "sorted", "set", "copy", "deepcopy", "reload"}
UNWRAPPERS = {"unwrap_model", "unwrap_module", "unwrap_megatron_model", "unwrap_ddp"}
BUILT = "its construction"
_BY_NAME = {"resolve_name", "locate", "get_class", "get_object"}  # of pkgutil, pydoc and hydra
_MODULE = "megatron.core.transformer.module.MegatronModule"


# --- attributes ------------------------------------------------------------------------------------------------


def _attribute(node: ast.Attribute, at: Position) -> Ref | None:
    if (text := path_text(node)) and (ref := lookup(text, at)[1]):
        return ref
    base = at.expr(node.value)
    if base is not None and (ref := member(base, node.attr, at.home)):
        return ref
    if base is not None and base.kind in {"class", "instance"} and not base.is_core:
        return None
    # Attributes only Megatron's models have, on an object nothing else is known of.
    if node.attr == "output_layer" and at.home.related:
        return output_layer("the attribute `output_layer`")
    is_mtp = node.attr == "mtp" and at.home.related
    return Ref("instance", layout.MTP_BLOCK, False, "the attribute `mtp`") if is_mtp else None


def member(base: Ref, name: str, home: Resolver) -> Ref | None:
    """What `base.name` stands for in a file."""
    match base.kind:
        case "module":
            return core_name(f"{base.name}.{name}")
        case "local-module":
            assert base.home is not None
            return export(base.home, name) or module(f"{base.name}.{name}", home)
        case "external":
            return module(f"{base.name}.{name}", home)  # it may be a folder of the repository without `__init__.py`
        case "class":
            return own_method(base, name) or own_attribute(base, name) or _class_member(base, name)
        case "instance":
            return _instance_member(base, name)
    return None


def _class_member(base: Ref, name: str) -> Ref | None:
    if not base.is_core:
        return None
    if name == "__dataclass_fields__":
        return Ref("fields", base.name)
    if api.has_callable(base.name, name):
        return Ref("function", f"{base.name}.{name}", base.sure, base.why)
    symbol = api.lookup(f"{base.name}.{name}")
    return Ref(symbol.kind, symbol.name) if symbol else None


def _instance_member(base: Ref, name: str) -> Ref | None:
    if name == "__class__":
        return base.but(kind="class")
    if ref := own_attribute(base, name):
        return ref
    if method := own_method(base, name):
        decorators = getattr(method.node, "decorator_list", ())
        is_property = any(last_name(decorator) in {"property", "cached_property"} for decorator in decorators)
        return returned(method) if is_property else method.but(bound=True)
    if not base.is_core:
        return None
    if kind := api.item_class(base.name, name):
        return Ref("list", kind, base.sure, base.why)
    held = api.submodule(base.name, name)
    if name == "output_layer" and api.is_model(base.name):
        owner = base.name if held is not None else layout.GPT_MODEL
        return Ref("instance", layout.COLUMN_LINEAR, base.sure, base.why, via=f"{owner}.output_layer")
    if held:
        return Ref("instance", held, base.sure, base.why)
    if held == "":
        return Ref("instance", _MODULE, False, base.why, via=f"{base.name}.{name}")
    if name in {"module", "language_model"} and api.is_model(base.name):
        return Ref("instance", layout.GPT_MODEL, False, f"`.{name}` of a Megatron model")
    if api.has_callable(base.name, name):
        return Ref("function", f"{base.name}.{name}", base.sure, base.why, bound=True)
    if name == "mtp" and api.is_model(base.name):
        return Ref("instance", layout.MTP_BLOCK, base.sure, base.why)
    kept = api.attribute_class(base.name, name)
    return Ref("instance", kept, base.sure, base.why) if kept else None


# --- classes of the repository's own ---------------------------------------------------------------------------


def own_method(base: Ref, name: str) -> Ref | None:
    """A method that a class of the repository, or one of its own bases, defines."""
    home, node = base.home, base.node
    if home is None or not isinstance(node, ast.ClassDef):
        return None
    return home.answer(("method", node, name), _find_method, node, name, home)


def _find_method(node: ast.ClassDef, name: str, home: Resolver) -> Ref | None:
    if function := home.once(methods, node).get(name):
        return Ref("local-function", home=home, node=function)
    return next((ref for base in _own_bases(node, home) if (ref := own_method(base, name))), None)


def _own_bases(node: ast.ClassDef, home: Resolver) -> list[Ref]:
    """The bases of a class that the repository defines."""
    return [ref for ref in home.bases(node) if ref.home is not None]


def own_attribute(base: Ref, name: str) -> Ref | None:
    """`self.name` of a class of the repository: what its methods assign, or what the class body annotates."""
    home, node = base.home, base.node
    return home.answer(("attribute", node, name), _find_attribute, node, name, home) if home and node else None


def _find_attribute(node: ast.ClassDef, name: str, home: Resolver) -> Ref | None:
    scope = home.model.classes[node]
    for binding in reversed(scope.bindings.get(name, [])):
        if binding.kind != "def" and (ref := bound(binding, home, scope)):
            return ref
    assigned = home.kept((_assigned_to_self, node), partial(_assigned_to_self, node, home))
    for binding, method in assigned.get(name, ()):
        if ref := bound(binding, home, method):
            return ref
    return next((ref for base in _own_bases(node, home) if (ref := own_attribute(base, name))), None)


def _assigned_to_self(node: ast.ClassDef, home: Resolver) -> dict[str, list[tuple[Binding, Scope]]]:
    """What the methods of a class assign to `self.name`, by name."""
    assignments: dict[str, list[tuple[Binding, Scope]]] = {}
    for scope in [home.model.functions[statement] for statement in node.body if statement in home.model.functions]:
        for path, bindings in scope.bindings.items():
            if path.startswith("self."):
                assigned = [(binding, scope) for binding in bindings if binding.kind in {"value", "annotation"}]
                assignments.setdefault(path.removeprefix("self."), []).extend(assigned)
    return assignments


def methods(node: ast.ClassDef) -> dict[str, FunctionNode]:
    """The methods in the body of a class by name, the first of each."""
    by_name: dict[str, FunctionNode] = {}
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            by_name.setdefault(statement.name, statement)
    return by_name


# --- calls -----------------------------------------------------------------------------------------------------


def _call(node: ast.Call, at: Position) -> Ref | None:
    text = at.text(node.func).removeprefix("builtins.")
    leaf = text.rpartition(".")[2] or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
    first = node.args[0] if node.args else None
    if text == "type" and len(node.args) == 1:
        ref = at.expr(first)
        return ref.but(kind="class") if ref and ref.kind == "instance" else None
    if text == "getattr" and len(node.args) > 1:
        return _getattr(node, at)
    if first is not None and (leaf in {"import_module", "__import__"} or text == "sys.modules.get"):
        return _modules(_imported_names(node, leaf, at), at.home)
    if leaf in _BY_NAME and isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value:
        return _resolved(first.value, at.home)
    if leaf == "cast" and len(node.args) == 2:
        return annotation(first, at) or at.expr(node.args[1])
    if leaf == "build_schedule_plan":
        return Ref("instance", layout.SCHEDULE_PLAN, False, "the result of `build_schedule_plan`")
    if leaf in UNWRAPPERS and first is not None:
        return _unwrapped(node, at)
    if leaf == "get_attr_wrapped_model" and len(node.args) == 2 and not node.keywords:
        model = ast.Call(ast.Name("unwrap_model", ast.Load()), node.args[:1], [])
        held = _getattr(ast.copy_location(ast.Call(node.func, [model, node.args[1]], []), node), at)
        return held.but(why=f"the result of `{leaf}`") if held is not None and not held.sure else held
    if leaf in PASS_THROUGH_CALLS and first is not None:
        return at.expr(first)
    if isinstance(node.func, ast.Attribute) and leaf in PASS_THROUGH_METHODS:
        return at.expr(node.func.value)
    called = _inherited(node, at) or at.expr(node.func)
    if called is None:
        return None
    if called.kind == "class":
        return called.but(kind="instance", why=f"{BUILT} on line {node.lineno}")
    if called.kind == "local-function":
        return _from_arguments(node, called, at) or returned(called)
    if leaf == "get_model" and called.name.startswith("megatron.training."):
        return Ref("instance", layout.GPT_MODEL, False, "what `get_model` returns")
    if called.kind == "function" and (made := api.result_class(called.name)):
        return Ref("instance", made, called.sure, called.why or f"what `{leaf}` returns")
    return None


def _imported_names(node: ast.Call, leaf: str, at: Position) -> list[str]:
    """The modules of `__import__("megatron.core")` and `import_module(".utils", package="megatron.core")`."""
    given = [keyword.value for keyword in node.keywords if keyword.arg == "package"] or node.args[1:2]
    packages = strings(given[0], at) if given else []
    whole = []
    for name in strings(node.args[0], at):
        dots = len(name) - len(name.lstrip("."))
        above = [package.rsplit(".", dots - 1)[0] for package in packages] if dots else [""]
        whole += [f"{package}.{name[dots:]}".strip(".") for package in above]
    if leaf == "__import__" and len(node.args) < 4 and not any(k.arg == "fromlist" for k in node.keywords):
        return [name.partition(".")[0] for name in whole]
    return whole


def _modules(names: list[str], home: Resolver) -> Ref | None:
    """The module of a name; of several, the first of Megatron's with the others."""
    refs = [ref for name in names if (ref := module(name, home)) is not None]
    core = [ref for ref in refs if ref.is_core]
    return core[0].but(also=tuple(ref.name for ref in core[1:])) if core else next(iter(refs), None)


def _resolved(name: str, home: Resolver) -> Ref | None:
    """`pkgutil.resolve_name("package.module:Class")`, `pydoc.locate("package.module.Class")`."""
    if ":" not in name and within(name):
        return core_name(name)
    head, _, path = name.partition(":")
    ref = module(head, home)
    for part in filter(None, path.split(".")):
        ref = member(ref, part, home) if ref is not None else None
    return ref


def _inherited(node: ast.Call, at: Position) -> Ref | None:
    """`super().name(...)`: the method of one of the class's own bases."""
    match node.func:
        case ast.Attribute(attr=name, value=ast.Call(func=ast.Name(id="super"))):
            function = at.scope.function
            owner = function.parent.node if function is not None and function.parent is not None else None
            bases = _own_bases(owner, at.home) if isinstance(owner, ast.ClassDef) else []
            return next((ref for base in bases if (ref := own_method(base, name))), None)
    return None


def _getattr(node: ast.Call, at: Position) -> Ref | None:
    refs: list[Ref] = []
    names = strings(node.args[1], at)
    for name in names:
        ref = at.expr(ast.copy_location(ast.Attribute(node.args[0], name, ast.Load()), node))
        if ref is not None and (len(names) == 1 or (ref.sure and api.lookup(ref.name) is not None)):
            refs.append(ref)
    if refs:
        alike = [ref.name for ref in refs[1:] if ref.is_core and ref.kind == refs[0].kind]
        return refs[0].but(also=(*refs[0].also, *alike)) if alike else refs[0]
    return at.expr(node.args[2]) if len(node.args) == 3 else None


def _unwrapped(node: ast.Call, at: Position) -> Ref | None:
    inner = at.expr(node.args[0])
    if inner and inner.is_core and inner.kind == "instance":
        if inner.name in {layout.DATA_PARALLEL, layout.FLOAT16_MODULE}:
            return Ref("instance", layout.GPT_MODEL, False, "an unwrapped Megatron model")
        return inner
    function = at.expr(node.func)
    foreign = function is not None and function.kind == "external" and not function.name.startswith("megatron")
    a_method = function is None and isinstance(node.func, ast.Attribute)  # of an object, as of an accelerator
    if foreign or a_method or not at.home.related:
        return None
    return Ref("instance", layout.GPT_MODEL, False, "the result of `unwrap_model`")


def _from_arguments(call: ast.Call, called: Ref, at: Position) -> Ref | None:
    """What a function makes of its arguments alone, as `getattr(owner, name)`: with those that this call gives it."""
    home, function = called.home, called.node
    if home is None or not isinstance(function, FunctionNode):
        return None
    scope = home.model.functions[function]
    for returned, _ in home.returns_of(function):
        value: ast.AST | None = returned.value
        if isinstance(value, ast.Name) and [b.kind for b in scope.bindings.get(value.id, ())] == ["value"]:
            value = scope.bindings[value.id][0].node
        match value:
            case ast.Call(func=ast.Name(id="getattr") as func, args=[ast.Name(id=owner), name, *_]):
                given = [argument(call, function, owner, called.bound), name]
                if isinstance(name, ast.Name):
                    given[1] = argument(call, function, name.id, called.bound)
                if None not in given:
                    return at.expr(ast.copy_location(ast.Call(func, given, []), call))  # type: ignore[arg-type]
    return None


def returned(function: Ref) -> Ref | None:
    """What a function of the repository returns: its annotation, else the first return that resolves."""
    home, node = function.home, function.node
    return home.answer(node, _returned, node, home) if home is not None else None


def _returned(node: FunctionNode, home: Resolver) -> Ref | None:
    if node not in home.model.functions:
        return None
    if node.returns is not None:
        ref = annotation(node.returns, home.outside(node))
        if ref and ref.is_core:
            return ref
    places = [(returned.value, at) for returned, at in home.returns_of(node) if returned.value]
    return _either(places or _yielded(node, home))


def _yielded(node: FunctionNode, home: Resolver) -> Iterator[tuple[ast.expr, Position]]:
    """What a generator gives one by one: it is taken for a list of them, and a list for its item."""
    if b"yield" in home.model.data:
        for inner in walk(node):
            if isinstance(inner, ast.Yield | ast.YieldFrom) and inner.value is not None:
                yield inner.value, home.on_line(inner.lineno)


# --- everything else -------------------------------------------------------------------------------------------


def _subscript(node: ast.Subscript, at: Position) -> Ref | None:
    if isinstance(node.value, ast.Call) and path_text(node.value.func) in {"globals", "locals"}:
        key = string(node.slice, at)
        return at.expr(ast.copy_location(ast.Name(key, ast.Load()), node)) if key else None
    held = at.expr(node.value)
    if at.text(node.value) == "sys.modules":
        key = string(node.slice, at)
        return module(key, at.home) if key else None
    if held is not None and held.kind == "fields":
        name = string(node.slice, at)
        return Ref("field", f"{held.name}.{name}") if name else None
    return item(node.value, at)


def _either(places: Iterable[tuple[ast.expr, Position]]) -> Ref | None:
    """The first that is Megatron's, or the first of which anything is known."""
    first = None
    for node, at in places:
        ref = at.expr(node)
        if ref is not None and ref.is_core:
            return ref
        first = first or ref
    return first


def _comprehension(node: ast.ListComp | ast.GeneratorExp, at: Position) -> Ref | None:
    if isinstance(node.elt, ast.Call):  # [unwrap_model(m) for m in models]
        return at.expr(node.elt)
    first, *path = (path_text(node.elt) or "").split(".")
    loops = [loop for loop in node.generators if isinstance(loop.target, ast.Name) and loop.target.id == first]
    for loop in loops:  # [m.mlp for chunk in chunks for m in chunk.modules() if isinstance(m, TransformerLayer)]
        known = (cls for test in loop.ifs for subject, cls in checks(test, True) if path_text(subject) == first)
        ref = next((ref for cls in known if (ref := checked(cls, at))), None) or item(loop.iter, at)
        for part in path:
            ref = member(ref, part, at.home) if ref is not None else None
        return ref
    return None


KINDS: dict[type, Handler] = {
    ast.Name: on_name,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Subscript: _subscript,
    ast.BoolOp: lambda node, at: _either((value, at) for value in node.values),
    ast.IfExp: lambda node, at: _either((value, at) for value in (node.body, node.orelse)),
    ast.List: item,  # a list of models is taken for the model itself
    ast.NamedExpr: lambda node, at: at.expr(node.value),
    ast.Await: lambda node, at: at.expr(node.value),
    ast.ListComp: _comprehension,
    ast.GeneratorExp: _comprehension,
}
