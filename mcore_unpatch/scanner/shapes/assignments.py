"""Assignments that change Megatron Core: to a class, a module, an instance, a submodule, by `=` or by `setattr`."""

from __future__ import annotations

import ast

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.megatron.versions import ITEM_CLASSES, is_in_no_wheel, within
from mcore_unpatch.scanner.names.expressions import methods
from mcore_unpatch.scanner.names.resolver import Ref, Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.shapes import evidence, fillings
from mcore_unpatch.scanner.shapes.fillings import Filling
from mcore_unpatch.scanner.shapes.install import (
    DATA,
    Install,
    core_target,
    is_bound_method,
    is_callable,
    is_data,
    is_function,
    is_mock_object,
    is_same_object,
    wraps,
)
from mcore_unpatch.scanner.sources.scopes import Scope, Site, dict_owner, last_name, object_text

_STEPS_OF_A_NAME = 10
_LISTS = {attribute for _, attribute in ITEM_CLASSES}  # of modules
FUNCTION_PARTS = {"__code__", "__defaults__", "__kwdefaults__", "__signature__"}


def from_assignment(site: Site, resolver: Resolver) -> list[Install]:
    """The patches an assignment statement makes."""
    target, value = site.target, site.value
    if value is None:
        return []
    if isinstance(target, ast.Attribute):
        if isinstance(target.value, ast.Name) and _is_own_self(target.value, site.scope):
            return []
        if isinstance(value, DATA) and not (target.attr in api.attribute_names() or target.attr.startswith("__")):
            return []  # whatever the object is, which is what takes time to find out
        if rows := fillings.of_loops(site, resolver, target.value):
            return _row_by_row(site, resolver, rows, target.value, target.attr, value)
        base = resolver.at(site).expr(target.value)
        return _attribute(site, resolver, target.value, base, target.attr, value, "")
    assert isinstance(target, ast.Subscript)
    return _item(site, resolver, target, value)


def from_setattr(site: Site, resolver: Resolver) -> list[Install]:
    """The patches a `setattr(obj, name, value)` makes."""
    call = site.call
    if not is_setattr(call):
        return []
    subject, name, value = call.args
    if isinstance(subject, ast.Name) and _is_own_self(subject, site.scope):
        return []
    if rows := fillings.of_loops(site, resolver, subject):
        return _row_by_row(site, resolver, rows, subject, name, value)
    base = resolver.at(site).expr(subject)
    names = strings(name, resolver.at(site))
    return set_by_name(site, resolver, subject, base, names, value)


def _row_by_row(
    site: Site, resolver: Resolver, rows: list[Filling], subject: ast.expr, name: ast.expr | str, value: ast.expr
) -> list[Install]:
    """What a statement sets in a loop that takes rows of objects, names and functions apart."""
    installs = []
    for row in rows:
        base, put = row[object_text(subject) or ""].ref(), row.get(object_text(value) or "")
        given = None if isinstance(name, str) else row.get(object_text(name) or "")
        new = put.node if put is not None else value
        if isinstance(name, str):
            installs += _attribute(site, resolver, subject, base, name, new, "")
            continue
        names = strings(*given) if given is not None else strings(name, resolver.at(site))
        installs += set_by_name(site, resolver, subject, base, names, new)
    return installs


def is_setattr(call: ast.AST) -> bool:
    """`setattr(obj, name, value)` and `nn.Module.__setattr__(obj, name, value)`, whosever it is."""
    if not isinstance(call, ast.Call) or len(call.args) != 3:
        return False
    return last_name(call.func) in {"setattr", "__setattr__"}


def set_by_name(
    site: Site, resolver: Resolver, subject: ast.expr, base: Ref | None, names: list[str], value: ast.expr
) -> list[Install]:
    """`setattr` with names that are known, or, on a class or module, computed ones."""
    resolver.project.effort.spend(len(names) * _STEPS_OF_A_NAME)
    installs = [i for name in names for i in _attribute(site, resolver, subject, base, name, value, "setattr")]
    if installs or names or base is None or not base.is_core or _is_config(base.name):
        return installs
    if base.kind in {"class", "module"} or (base.kind == "instance" and is_bound_method(value)):
        may_be_state = base.kind == "module" and api.is_state_holder(base.name)
        if is_data(value, site.scope) or (may_be_state and not is_function(site, resolver, value)):
            return []
        why = "an attribute name that is computed" + (f", and {base.why}" if base.why else "")
        return [Install(site, site.node, f"{base.name}.*", "setattr", False, why, value, base.name, "*", subject)]
    return []


def _attribute(
    site: Site, resolver: Resolver, subject: ast.expr, base: Ref | None, name: str, value: ast.expr, shape: str
) -> list[Install]:
    """`subject.name = value`, where `subject` was resolved to `base`."""
    said = site.node.args if isinstance(site.node, ast.Call) else []
    named = not shape or any(isinstance(argument, ast.Constant) and argument.value == name for argument in said)
    base = evidence.of_object(site, resolver, subject, base, name, value, named)
    if base is None or not base.is_core:
        return []

    def install(kind: str, owner: str, target: str = "", adds: bool = False) -> Install:
        where = target or f"{owner}.{name}"
        made = Install(site, site.node, where, shape or kind, base.sure, base.why, value, owner, name, subject, adds)
        made.mock, made.possible, made.on_instance = is_mock_object(value), base.possible, kind == "instance-attr"
        return made

    if base.kind == "module":
        if api.is_state(base.name, name) and not _is_code(site, resolver, value):
            return []
        known = [module for module in (base.name, *base.also) if api.in_module(module, name)]
        if known:
            patch = install("module-attr", known[0])
            if len(known) > 1:  # a loop over several is one patch
                patch.why, patch.patches_more = f"and in {_more_modules(known)}", True
            return [patch]
        replaces = isinstance(value, ast.Call) and wraps(site.target, value)  # what a fork or an older one has
        adds = not is_in_no_wheel(base.name)
        patches = replaces or (is_callable if adds else _is_code)(site, resolver, value)
        return [install("module-attr", base.name, adds=adds and not replaces)] if patches else []
    if base.kind == "class":
        return _class_attribute(site, resolver, subject, base, name, value, install)
    if base.kind == "instance":
        return _instance_attribute(site, resolver, base, name, value, install)
    if base.kind == "function" and name in FUNCTION_PARTS:  # it is the function that does something else
        owner, _, name = base.name.rpartition(".")
        return [install("module-attr" if module_of(base).name == owner else "class-attr", owner)]
    if base.kind == "field" and name in {"default", "default_factory"} and is_callable(site, resolver, value):
        owner, _, attribute = base.name.rpartition(".")
        return [install("class-attr", owner, f"{owner}.{attribute}")]
    return []


def _class_attribute(site, resolver, subject, base, name, value, install) -> list[Install]:  # type: ignore[no-untyped-def]
    if _defines(base, name):
        return []  # a method the repository's own subclass defines: its own business
    if isinstance(value, ast.Constant) and value.value is not None:
        return []  # a mark
    kind = "class-of-instance" if evidence.is_class_of_object(subject) else "class-attr"
    if kind == "class-attr" and base.node is not None and not api.is_model(base.name):
        return []  # to override a method in a class of one's own is no patch, however it is written
    replaces = api.has_callable(base.name, name) or (name == "__bases__" and base.node is None)
    replaces = replaces or (api.defines(f"{base.name}.{name}") and _is_code(site, resolver, value))  # a field
    replaces = replaces or (is_in_no_wheel(base.name) and _is_code(site, resolver, value))
    if not replaces and (base.node is not None or not is_callable(site, resolver, value)):
        return []
    adds = not replaces and not is_in_no_wheel(base.name)
    return [install(kind, owner, adds=adds) for owner in (base.name, *base.also)]


def _instance_attribute(site, resolver, base, name, value, install) -> list[Install]:  # type: ignore[no-untyped-def]
    if _defines(base, name):
        return []
    owner = base.via or base.name
    if api.has_callable(base.name, name):
        plain = isinstance(value, DATA) or (name == "__class__" and _is_config(base.name))
        return [] if plain else [install("instance-attr", owner)]
    if api.holds_function(base.name, name) and not _is_config(base.name):
        return [install("instance-attr", owner)] if is_function(site, resolver, value) else []
    in_no_wheel = is_in_no_wheel(base.name)
    is_output_layer = name == "output_layer" and (api.is_model(base.name) or in_no_wheel)
    if is_output_layer or api.submodule(base.name, name) is not None or api.item_class(base.name, name):
        if isinstance(value, ast.Constant) or is_same_object(site.target, value):
            return []
        if not is_output_layer and (not api.is_module_class(base.name) or api.is_transient(base.name, name)):
            return []
        held = resolver.at(site).expr(value)
        if held is not None and held.name in {layout.DATA_PARALLEL, layout.FLOAT16_MODULE}:
            return []  # a child wrapped for training, not replaced
        return [
            install("submodule", layout.GPT_MODEL if is_output_layer and not api.submodule(base.name, name) else owner)
        ]
    if in_no_wheel and is_function(site, resolver, value):
        return [install("instance-attr", owner)]
    if is_bound_method(value) and base.node is None and not _is_config(base.name):
        return [install("instance-attr", owner, adds=not in_no_wheel)]
    return []


def _item(site: Site, resolver: Resolver, target: ast.Subscript, value: ast.expr) -> list[Install]:
    """`something[key] = value`: sys.modules, a `__dict__`, a list of layers."""
    at, data = resolver.at(site), resolver.model.data
    holder, base = namespace(target.value, site, resolver)
    held = at.expr(target.value) if holder is None and b"__dataclass_fields__" in data else None
    names = strings(target.slice, at) if holder is not None or held is not None or b"modules" in data else []
    if any(map(within, names)) and at.text(target.value) == "sys.modules":
        return whole_modules(site, names, value)
    if holder is not None:
        if base is None or not base.is_core:
            return []
        if isinstance(holder, ast.Name) and _is_own_self(holder, site.scope):
            # A function under the name of a child: `nn.Module` would have refused it.
            names = [name for name in names if api.submodule(base.name, name) and is_function(site, resolver, value)]
        shape = "sys-modules" if base.kind == "module" else ""
        return [i for name in names for i in _attribute(site, resolver, holder, base, name, value, shape)]
    if held is not None and held.kind == "fields":
        return fields_of(site, held, names, value)
    if isinstance(target.value, ast.Attribute) and target.value.attr in _LISTS:
        owner, name = at.expr(target.value.value), target.value.attr
        if owner and owner.kind == "instance" and api.item_class(owner.name, name):
            where = f"{owner.name}.{name}"
            return [Install(site, site.node, where, "submodule", owner.sure, owner.why, value, owner.name, name)]
    return []


def whole_modules(site: Site, keys: list[str], value: ast.expr) -> list[Install]:
    """`sys.modules["megatron.core.x"] = value`; a loop over several names is one patch."""
    names = [key for key in keys if within(key)]
    if not names:
        return []
    target = core_target(names[0])
    why = f"and {_more_modules(names)} in the same loop" if len(names) > 1 else ""
    return [Install(site, site.node, target, "sys-modules", True, why, value, target, "")]


def _more_modules(names: list[str]) -> str:
    return f"{len(names) - 1} more module{'s' if len(names) > 2 else ''}"


def fields_of(site: Site, held: Ref, names: list[str], value: ast.expr) -> list[Install]:
    """`TransformerConfig.__dataclass_fields__["name"] = field`; a loop over several names is one patch."""
    owner, name = held.name, names[0] if names else "*"
    return [Install(site, site.node, f"{owner}.{name}", "class-attr", held.sure, held.why, value, owner, name)]


def namespace(node: ast.expr, site: Site, resolver: Resolver) -> tuple[ast.expr | None, Ref | None]:
    """The object whose names a mapping holds, as it is written and what it is; the mapping may go by a name."""
    if (holder := dict_owner(node)) is not None:
        base = resolver.at(site).expr(holder)
        return holder, module_of(base) if base is not None and base.kind == "function" else base  # its `__globals__`
    name = node.id if isinstance(node, ast.Name) else ""
    for home in site.scope.chain() if name else ():
        for binding in reversed(home.bindings.get(name, ())):
            if binding.kind == "value" and isinstance(binding.node, ast.expr) and binding.line <= site.node.lineno:
                if (holder := dict_owner(binding.node)) is not None:
                    return holder, resolver.at_binding(binding, home).expr(holder)
                return None, None
    return None, None


def module_of(ref: Ref) -> Ref:
    """The module that a function or a class of Megatron's stands in."""
    name = ref.name
    while within(name) and ((symbol := api.lookup(name)) is None or symbol.kind != "module"):
        name = name.rpartition(".")[0]
    return ref.but(kind="module", name=name)


def _is_code(site: Site, resolver: Resolver, value: ast.expr) -> bool:
    """Whether a function or a class is put where Megatron may keep state: groups and sizes are neither."""
    ref = resolver.at(site).expr(value)
    return (ref is not None and ref.kind in {"external", "class", "function"}) or is_callable(site, resolver, value)


# --- small questions ------------------------------------------------------------------------------------------------


def _is_own_self(node: ast.Name, scope: Scope) -> bool:
    """`self` of a method: what a class does to itself is not a patch."""
    for function in scope.outwards():
        if function.kind == "function" and function.parent is not None and function.parent.kind == "class":
            arguments = function.node.args  # type: ignore[attr-defined]
            first = (arguments.posonlyargs + arguments.args)[:1]
            return bool(first) and first[0].arg == node.id
    return False


def _defines(base: Ref, name: str) -> bool:
    """Whether the repository's own class behind `base` defines `name` in its body."""
    return isinstance(base.node, ast.ClassDef) and base.home is not None and name in base.home.once(methods, base.node)


def _is_config(name: str) -> bool:
    return name.rpartition(".")[2].endswith("Config")
