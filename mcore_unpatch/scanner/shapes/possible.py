"""The last evidence: a method replaced on an object of unknown type, in a file that works on Megatron's models.

Objects reached by walking (`named_modules()`), by `getattr`, through a parameter without annotation; the class of one.
"""

from __future__ import annotations

import ast
import re
import sys

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.resolver import Ref, Resolver
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.scopes import Binding, FunctionNode, Scope, Site, last_name, path_text

_IMPORTS_MEGATRON = re.compile(rb"^[ \t]*+(?:from|import)[ \t]++megatron\b", re.MULTILINE)
_DEFINED = ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MODULE = "megatron.core.transformer.module.MegatronModule"


def of_method(site: Site, resolver: Resolver, subject: ast.expr, name: str, bound: bool) -> Ref | None:
    """The class an object may be of, by the method that is replaced; `bound`: the value is a method bound to it."""
    if is_test(resolver.model.path) or name.startswith("__") or not imports_megatron(resolver):
        return None
    called = _last_name(subject)
    if called.endswith(("config", "args")):  # fields, not methods
        return None
    owner = api.method_owner(name)
    if owner is None and "optimizer" in called and api.has_callable(layout.OPTIMIZER, name):
        owner = layout.OPTIMIZER
    if name == "forward" or (bound and owner is None and api.has_callable(MODULE, name)):
        owner = MODULE
    if owner is None or _is_foreign(subject, site, resolver):
        return None
    kind = "class" if is_class_of_object(subject) else "instance"
    return Ref(kind, owner, False, f"the method `{name}`, in a file that imports Megatron", possible=True)


def imports_megatron(resolver: Resolver) -> bool:
    """Whether a file itself imports something of Megatron's."""
    return resolver.once(_imports_it, resolver.model.data)


def _imports_it(data: bytes) -> bool:
    return _IMPORTS_MEGATRON.search(data) is not None


def _last_name(node: ast.expr) -> str:
    return last_name(node).lower()


def is_class_of_object(node: ast.expr) -> bool:
    """`x.__class__` and `type(x)`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "__class__"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"


def _is_made_elsewhere(node: ast.Name, scope: Scope, resolver: Resolver) -> bool:
    """Whether a name holds what another library has made, as `hf` of `for m in hf.modules()`."""
    home = scope.home_of(node.id) or scope
    for binding in home.bindings.get(node.id, ()):
        if isinstance(binding.node, ast.Call):
            maker = resolver.at_binding(binding, home).expr(binding.node.func)
            if _is_of_another_library(maker):
                return True
    return False


def _is_of_another_library(ref: Ref | None) -> bool:
    """Whether something belongs to a library that may make models: neither Megatron nor Python's own."""
    head = ref.name.partition(".")[0] if ref is not None and ref.kind == "external" else "megatron"
    return head != "megatron" and head not in sys.stdlib_module_names


def _is_given_others_classes(binding: Binding, scope: Scope | None, resolver: Resolver) -> bool:
    """Whether all calls of the function around pass classes of other libraries for a parameter."""
    if scope is None or not isinstance(scope.node, FunctionNode) or not isinstance(binding.node, ast.arg):
        return False
    passed = [
        at.expr(value)
        for call, at in resolver.calls_of(scope.node.name)
        if (value := argument(call, scope.node, binding.node.arg, False)) is not None
    ]
    leaves = [ref.name.rpartition(".")[2] if ref is not None and ref.kind == "external" else "" for ref in passed]
    return bool(leaves) and all(leaf[:1].isupper() for leaf in leaves)


def _is_foreign(subject: ast.expr, site: Site, resolver: Resolver) -> bool:
    """Whether an object comes from another library, or is one that the repository's own class holds."""
    while isinstance(subject, ast.Attribute | ast.Subscript):
        subject = subject.value
    if isinstance(subject, ast.Call):
        subject = subject.args[0] if subject.args else subject.func
    if not isinstance(subject, ast.Name):
        return True
    scope = site.scope.home_of(subject.id)
    for binding in scope.bindings[subject.id] if scope is not None else ():
        at = resolver.at_binding(binding, scope or site.scope)
        if isinstance(binding.node, _DEFINED):
            return True
        asked = binding.node
        if isinstance(asked, ast.Call) and path_text(asked.func) == "getattr" and asked.args:
            holder = at.expr(asked.args[0])
            if holder is not None and holder.kind == "external":
                return True  # what another library's module has
        if binding.kind == "param" and _is_given_others_classes(binding, scope, resolver):
            return True
        if binding.kind == "narrow" and not site.block.within(binding.block):
            continue
        if isinstance(asked, ast.Call):
            asked = asked.func
        elif binding.kind != "narrow":
            continue
        made = at.expr(asked)
        walked = asked.value if made is None and isinstance(asked, ast.Attribute) else None
        if isinstance(walked, ast.Name) and _is_made_elsewhere(walked, scope or site.scope, resolver):
            return True
        if _is_of_another_library(made):
            return True
    return scope is None
