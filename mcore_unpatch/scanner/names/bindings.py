"""What a name is bound to: imports, definitions, assignments, loops, parameters, annotations, `isinstance`."""

from __future__ import annotations

import ast
import builtins
from bisect import bisect_right
from collections.abc import Iterator
from operator import attrgetter

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.megatron.versions import is_in_no_wheel, within
from mcore_unpatch.scanner.names.annotations import annotation, classes
from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.sources.callers import argument, called_as, with_defaults
from mcore_unpatch.scanner.sources.scopes import Binding, FunctionNode, Scope, path_text

_OF_OTHERS = b".get_output_embeddings("  # asks a model of transformers for its head


def export(home: Resolver, name: str) -> Ref | None:
    """What another module gets when it imports `name` from this one."""
    return home.answer(name, _export, home, name)


def _export(home: Resolver, name: str) -> Ref | None:
    scope = home.model.scope
    for binding in reversed(scope.bindings.get(name, [])):
        if ref := bound(binding, home, scope):
            return ref
    return _from_stars(home, name) or _forwarded(home, name)


def _forwarded(home: Resolver, name: str) -> Ref | None:
    """A name of a module with `def __getattr__(name): return getattr(other, name)`, which has all of the other."""
    for forwarding in forwards(home):
        if forwarding.kind == "module":
            return core_name(f"{forwarding.name}.{name}")
        if forwarding.home is not None and (ref := export(forwarding.home, name)):
            return ref
    return None


def forwards(home: Resolver) -> list[Ref]:
    """The modules that a file has all names of, through its `__getattr__`."""
    return home.kept(forwards, lambda: [*_forwards(home)])


def _forwards(home: Resolver) -> Iterator[Ref]:
    for binding in home.model.scope.bindings.get("__getattr__", ()):
        function = binding.node
        asked = [argument.arg for argument in function.args.args] if isinstance(function, FunctionNode) else []
        for node, at in home.returns_of(function) if function is not None else ():
            match node.value:
                case ast.Call(func=ast.Name(id="getattr"), args=[of, ast.Name(id=name), *_]) if [name] == asked:
                    if (ref := at.expr(of)) is not None:
                        yield ref


def _from_stars(home: Resolver, name: str) -> Ref | None:
    stars = (star.node for star in home.model.stars if isinstance(star.node, ast.ImportFrom))
    ref = next((ref for star in stars if (ref := _import_from(star, name, home))), None)
    of_python = ref is not None and ref.is_core and hasattr(builtins, name) and api.lookup(ref.name) is None
    return ref if not of_python else None


def on_name(node: ast.Name, at: Position) -> Ref | None:
    """What a name stands for where it is used."""
    known, ref = lookup(node.id, at)
    if ref is None and not known:
        ref = _from_stars(at.home, node.id)
    if ref is None and known:
        ref = _collected(node.id, at)
    if ref is None and node.id == "output_layer" and at.home.related and _OF_OTHERS not in at.home.model.data:
        return output_layer("the name `output_layer`")
    return ref


def lookup(name: str, at: Position) -> tuple[bool, Ref | None]:
    """Whether a name, or a path such as `self.model`, is bound here, and what it stands for."""
    scope = at.scope.home_of(name)
    if scope is None:
        return False, None
    if scope is not at.scope:
        return True, at.home.answer(("outer", scope, name), _outer, at.home, scope, name)
    return True, _bound_above(name, at)


def _bound_above(name: str, at: Position) -> Ref | None:
    """What a name is bound to by the lines above, the last one first, in the scope where it is used."""
    home, scope, block, line, _ = at
    effort = home.project.effort
    bindings = scope.bindings[name]
    index = bisect_right(bindings, line, key=attrgetter("line")) - 1
    passed = []
    cuts, ref = effort.cuts, None
    while index >= 0:
        binding = bindings[index]
        if block.parent is not None and block is not scope.block and binding.line < block.line:
            block = block.parent  # what stands before a block is to it what it is to the block around
            continue
        key = (scope, name, block, index)
        if key in home.above:
            ref = home.above[key]
            break
        index -= 1
        effort.spend()
        if binding.line < line:  # from here on the line no longer matters
            passed.append(key)
        elif binding.kind == "value":
            continue  # `x = f(x)`
        holds = block.within(binding.block)
        if (binding.kind == "narrow" and not holds) or binding.kind == "changed":
            continue
        ref = bound(binding, home, scope)
        if ref is not None or (holds and binding.kind not in {"narrow", "annotation"}):
            break  # one that always holds here: what came before it does not count
    if cuts == effort.cuts:
        home.above.update(dict.fromkeys(passed, ref))
    return ref


def _outer(home: Resolver, scope: Scope, name: str) -> Ref | None:
    """What a name of a scope is to the scopes within: they may run whenever, so any of its bindings may hold."""
    bindings = (binding for binding in reversed(scope.bindings[name]) if binding.kind != "narrow")
    return next((ref for binding in bindings if (ref := bound(binding, home, scope))), None)


def bound(binding: Binding, home: Resolver, scope: Scope) -> Ref | None:
    """What a binding gives."""
    return home.answer(binding, _binding, binding, home.at_binding(binding, scope))


def _binding(binding: Binding, at: Position) -> Ref | None:
    node, home = binding.node, at.home
    match binding.kind:
        case "import":
            return module(binding.detail, home)
        case "from":
            assert isinstance(node, ast.ImportFrom)
            return _import_from(node, binding.detail, home)
        case "def":
            return Ref("local-function", home=home, node=node)
        case "class":
            assert isinstance(node, ast.ClassDef)
            return own_class(node, home)
        case "value":
            return at.expr(node)
        case "item":
            return item(node, at)
        case "annotation":
            return annotation(node, at)
        case "narrow":
            assert isinstance(node, ast.expr)
            return checked(node, at)
        case "param":
            assert isinstance(node, ast.arg)
            return _param(node, at.scope, home)
    return None


def checked(node: ast.expr, at: Position) -> Ref | None:
    """What a name is after a check of its class, as `checks` gives it."""
    if isinstance(node, ast.Subscript):  # issubclass
        return classes(node.slice, at)
    ref = classes(node, at)
    by_name = any(isinstance(part, ast.Constant) for part in ast.walk(node))
    check = "check of its class's name" if by_name else "isinstance check"
    return ref and ref.but(kind="instance", sure=True, why=f"the {check} on line {node.lineno}")


# --- imports ---------------------------------------------------------------------------------------------------


def module(dotted: str, home: Resolver) -> Ref | None:
    """The module of a dotted name: Megatron's, the repository's, or another library's."""
    if dotted == "megatron" or within(dotted):
        symbol = api.lookup(dotted)
        return Ref("module", symbol.name if symbol else dotted)
    local = home.find(dotted)
    return Ref("local-module", dotted, home=local) if local else Ref("external", dotted)


def _import_from(node: ast.ImportFrom, name: str, home: Resolver) -> Ref | None:
    named = node.module or ""
    if not node.level and within(f"{named}.{name}"):
        return core_name(f"{named}.{name}")
    is_own = home.project.lacks(home.model.path, named, node.level, name)
    if not is_own and (other := home.find(named, node.level)) is not None:
        is_own = True
        if other is not home and (ref := export(other, name)):
            return ref
    if sub := home.find(f"{named}.{name}" if named else name, node.level):
        return Ref("local-module", name, home=sub)
    return None if node.level or is_own else Ref("external", f"{named}.{name}")


# --- classes and parameters ------------------------------------------------------------------------------------


def own_class(node: ast.ClassDef, home: Resolver) -> Ref:
    """A class of a module: known by the first of its bases that leads to Megatron Core."""
    ref = next((base for base in home.bases(node) if base.is_core), None)
    if ref is None:
        return Ref("class", "", home=home, node=node)
    return Ref("class", ref.name, ref.sure, f"`{node.name}`, which derives from it", home=home, node=node)


def derives(node: ast.ClassDef, home: Resolver, name: str) -> bool:
    """Whether a class of a module derives from one of Megatron Core's, by any of its bases."""
    return any(
        name in api.ancestry(ref.name)
        or (isinstance(ref.node, ast.ClassDef) and ref.node is not node and derives(ref.node, ref.home or home, name))
        for ref in home.bases(node)
    )


def _param(node: ast.arg, scope: Scope, home: Resolver) -> Ref | None:
    function, outer = scope.node, scope.parent
    assert isinstance(function, FunctionNode) and outer is not None
    positional = [*function.args.posonlyargs, *function.args.args]
    home.project.effort.spend(len(positional))
    around = home.in_body(outer, function.lineno)
    if node.annotation is not None and (ref := annotation(node.annotation, around)):
        return ref
    is_method = outer.kind == "class"
    if is_method and positional and node is positional[0]:
        decorators = {path_text(d) for d in function.decorator_list}
        assert isinstance(outer.node, ast.ClassDef)
        own = own_class(outer.node, home)
        if "classmethod" in decorators:
            return own
        return None if "staticmethod" in decorators else own.but(kind="instance", why="`self`")
    default = next(value for parameter, value in with_defaults(function) if parameter is node)
    if ref := around.expr(default) or _handed_by_decorator(function, home):
        return ref
    position = positional.index(node) if node in positional else -1
    called = called_as(function, outer)
    key = ("callers", called, node.arg, position, is_method)
    return home.answer(key, _from_callers, node, function, is_method, called, home)


def _handed_by_decorator(function: FunctionNode, home: Resolver) -> Ref | None:
    """`@wrapt.when_imported("megatron.core.utils")` hands the module to the function."""
    for decorator in function.decorator_list:
        match decorator:
            case ast.Call(func=ast.Name(id="when_imported") | ast.Attribute(attr="when_imported"), args=[first]):
                name = first.value if isinstance(first, ast.Constant) else None
                return module(name, home) if isinstance(name, str) else None
    return None


def _from_callers(node: ast.arg, function: FunctionNode, is_method: bool, called: str, home: Resolver) -> Ref | None:
    """A parameter is what this module's own calls pass for it."""
    for call, caller in home.calls_of(called):
        home.project.effort.spend(1 + len(call.keywords))
        value = argument(call, function, node.arg, is_method)
        ref = caller.expr(value) if value is not None else None
        if ref and ref.is_core:
            return ref.but(why=ref.why or f"the call on line {call.lineno}")
    return None


# --- items of collections --------------------------------------------------------------------------------------


def item(node: ast.AST | None, at: Position) -> Ref | None:
    """An item of a collection; a list of models is taken for the model itself."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        refs = [ref for element in node.elts if (ref := at.expr(element)) and ref.is_core]
        return refs[0].but(also=tuple(ref.name for ref in refs[1:])) if refs else None
    if isinstance(node, ast.Name) and (ref := _collected(node.id, at)):
        return ref
    if isinstance(node, ast.Attribute) and node.attr == "layers":
        owner = at.expr(node.value)
        layer = api.item_class(owner.name, "layers") if owner and owner.kind == "instance" else None
        if owner and layer:
            return Ref("instance", layer, owner.sure, owner.why)
    ref = at.expr(node)
    if ref is not None and ref.kind == "list":
        return ref.but(kind="instance")
    return ref if ref is not None and ref.kind == "instance" else None


def _collected(name: str, at: Position) -> Ref | None:
    """An item of a list that is written out, or that this function filled with `name.append(item)`."""
    return at.home.answer(("collected", at.scope, name), _search_collected, name, at.home, at.scope)


def _search_collected(name: str, home: Resolver, scope: Scope) -> Ref | None:
    around = scope.home_of(name) or scope
    if ref := home.answer(("written out", around, name), _written_out, name, home, around):
        return ref
    if not any(isinstance(b.node, ast.List | ast.ListComp) for b in scope.bindings.get(name, ())):
        return None
    for call, block in home.callers.appends(name, scope, home.project.effort):
        ref = Position(home, scope, block, call.lineno).expr(call.args[0]) if call.args else None
        if ref is not None and ref.is_core:
            return ref
    return None


def _written_out(name: str, home: Resolver, scope: Scope) -> Ref | None:
    bindings = scope.bindings.get(name, ())
    written = (b for b in bindings if isinstance(b.node, ast.Tuple | ast.List | ast.Set) and b.node.elts)
    binding = next(written, None)
    return item(binding.node, home.at_binding(binding, scope)) if binding is not None else None


def core_name(full: str) -> Ref:
    """A dotted name below `megatron.core`, known to the tables or not."""
    symbol = api.lookup(full)
    if symbol is not None:
        return Ref("value" if symbol.kind == "state" else symbol.kind, symbol.name)
    leaf = full.rpartition(".")[2]
    # Not in any release the tables know: classes are written in capitals, anything else could be whatever.
    is_class, in_no_wheel = leaf[:1].isupper() and not leaf.isupper(), is_in_no_wheel(full)
    kind = "class" if is_class else "module" if in_no_wheel else "value"
    return Ref(kind, full, why="" if in_no_wheel else "a name the known releases do not have")


def output_layer(why: str) -> Ref:
    """The LM head of a model nothing else is known of."""
    return Ref("instance", layout.COLUMN_LINEAR, False, why, via=f"{layout.GPT_MODEL}.output_layer")
