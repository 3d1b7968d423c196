"""What an object is that its type says nothing of: told by the replacement, by what else is done to it, by a name."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.annotations import annotation
from mcore_unpatch.scanner.names.expressions import BUILT, own_method
from mcore_unpatch.scanner.names.resolver import Position, Ref, Resolver
from mcore_unpatch.scanner.shapes.install import is_bound_method, is_built, is_function
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.prefilter import words_of
from mcore_unpatch.scanner.sources.scopes import (
    FunctionNode,
    ModuleModel,
    Scope,
    Site,
    last_attribute,
    last_name,
    path_text,
)

_IMPORTS_MEGATRON = re.compile(rb"^[ \t]*+(?:from|import)[ \t]++megatron\b", re.MULTILINE)  # slow to look for
_DEFINED = ast.Import | ast.ImportFrom | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
MODULE = "megatron.core.transformer.module.MegatronModule"

# What code is handed whole, the most frequent first.
_HANDED_AROUND = (layout.GPT_MODEL, layout.DATA_PARALLEL, layout.OPTIMIZER)
_OF_TORCH = "no_sync"  # a method of torch's own wrapper too


def of_object(
    site: Site, resolver: Resolver, subject: ast.expr, base: Ref | None, name: str, value: ast.expr, named: bool
) -> Ref | None:
    """What `subject` is, given what `base` leaves open; `named`: the statement itself says which attribute is set."""
    if base is not None and not _leaves_open(base, name):
        return base
    ref = _by_value(site, resolver, value) or _by_use(site, resolver, subject, base, name)
    of_megatron = base is not None and base.is_core
    if ref is None and (named or of_megatron) and (base is None or of_megatron or base.home is None):
        ref = _by_seam(site, resolver, subject, name, value)
    if ref is None and named and not _is_own(base, name):
        ref = _by_method(resolver, subject, name, value)
    if ref is None and named and base is None:
        ref = _possible(site, resolver, subject, name, value)
    return ref or base


def _leaves_open(base: Ref, name: str) -> bool:
    """Whether a type says too little: an object that is no Megatron model, as far as is known, or any module at all."""
    if base.is_core:
        whatever = base.kind == "instance" and base.name == MODULE and base.node is None
        return whatever and not api.has_callable(base.name, name)
    if isinstance(base.node, ast.ClassDef) and not base.node.bases and base.why.startswith(BUILT):
        return False  # an object that was just built, of a class that derives from nothing
    return base.kind == "instance" or (base.kind == "class" and base.home is None)


def _by_value(site: Site, resolver: Resolver, value: ast.expr) -> Ref | None:
    """The class a bound replacement names: `fn.__get__(obj, Cls)`, or `self: Cls` of the function that is bound."""
    if not is_bound_method(value):
        return None
    assert isinstance(value, ast.Call)
    if isinstance(value.func, ast.Attribute) and value.func.attr == "__get__" and len(value.args) > 1:
        cls = resolver.at(site).expr(value.args[1])
        if cls and cls.kind == "class" and cls.is_core:
            return cls.but(kind="instance", why="the class given to `__get__`")
    own = _annotated_self(site, resolver, value)
    cls = annotation(*own) if own is not None else None
    return cls.but(sure=False, why="the annotation of the replacement's `self`") if cls and cls.is_core else None


def _annotated_self(site: Site, resolver: Resolver, value: ast.Call) -> tuple[ast.expr, Position] | None:
    """The annotation of the first parameter of a function that is bound, and where it stands."""
    function: ast.expr | None = value.args[0] if value.args else None
    if isinstance(value.func, ast.Attribute) and value.func.attr == "__get__":
        function = value.func.value
    ref = resolver.at(site).expr(function)
    if ref is None or ref.home is None or not isinstance(ref.node, FunctionNode):
        return None
    first = (ref.node.args.posonlyargs + ref.node.args.args)[:1]
    said = first[0].annotation if first else None
    return (said, ref.home.outside(ref.node)) if said is not None else None


def _by_use(site: Site, resolver: Resolver, subject: ast.expr, own: Ref | None, name: str) -> Ref | None:
    """The class whose methods are used on the same object nearby, where nobody but Megatron has methods so called."""
    path = path_text(subject)
    if path is None or not imports_megatron(resolver) or not resolver.once(_says_method, resolver.model):
        return None
    words = {
        word: line
        for word, line in resolver.once(_attributes_used, _home(path, site.scope)).get(path, {}).items()
        if word != name and _is_telling(word) and not _is_own(own, word)
    }
    fitting = {cls: [word for word in words if api.has_callable(cls, word)] for cls in _HANDED_AROUND}
    cls, fit = max(fitting.items(), key=lambda item: len(item[1]))
    if 2 * len(fit) <= len(words) or (_is_own(own, name) and not api.has_callable(cls, name)):
        return None
    return Ref("instance", cls, False, f"`{fit[0]}` on line {words[fit[0]]}, which only Megatron's classes have")


def _is_telling(word: str) -> bool:
    """Whether a name is one of Megatron's methods and of nobody else's."""
    return "_" in word.strip("_") and word != _OF_TORCH and word in api.telling_methods()


def _says_method(model: ModuleModel) -> bool:
    """Whether a file has a word that is such a method of what is handed around: else no tree is walked for one."""
    return not _handed_methods().isdisjoint(words_of(model.data))


@cache
def _handed_methods() -> frozenset[bytes]:
    own = {name for cls in _HANDED_AROUND for base in api.ancestry(cls) for name in api.members(base)}
    may_be = (word for word in api.telling_methods() if word in own or word[:2] == "__")  # the others none of them has
    words = filter(_is_telling, may_be)
    return frozenset(word.encode() for word in words if any(api.has_callable(cls, word) for cls in _HANDED_AROUND))


def _is_own(own: Ref | None, word: str) -> bool:
    return own is not None and own_method(own, word) is not None


def _home(path: str, scope: Scope) -> ast.AST:
    """Where an object goes by a path: the function that binds the name; all of the class for an attribute of `self`."""
    first, dot, _ = path.partition(".")
    home = scope.home_of(first) or scope
    return home.parent.node if dot and home.parent is not None and home.parent.kind == "class" else home.node


def _attributes_used(node: ast.AST) -> dict[str, dict[str, int]]:
    """The attributes that are read from or set on each object below a node, with their first lines."""
    used: dict[str, dict[str, int]] = {}
    for inner in walk(node):
        if isinstance(inner, ast.Attribute) and (path := path_text(inner.value)):
            used.setdefault(path, {}).setdefault(inner.attr, inner.lineno)
    return used


def _by_seam(site: Site, resolver: Resolver, subject: ast.expr, name: str, value: ast.expr) -> Ref | None:
    """Well-known seams on an object nothing is known of; only in files that have to do with Megatron."""
    if not resolver.related or isinstance(value, ast.Constant):
        return None
    # The names around: of the object, and of the functions that the statement stands in.
    around = f"{ast.unparse(subject)} {site.scope.qualified_name}".lower() if name == "_checkpointed_forward" else "mtp"
    if "mtp" not in around:
        return Ref("instance", layout.BLOCK, False, f"the well-known seam `{name}`")
    if name in layout.SEAM_METHODS:
        return Ref("instance", layout.SEAM_METHODS[name], False, f"the well-known seam `{name}`")
    on_self = isinstance(subject, ast.Name) and subject.id == "self"
    if name == "output_layer" and not on_self and is_built(value, site.scope):
        return Ref("instance", layout.GPT_MODEL, False, "the well-known seam `output_layer`")
    if name == "forward_impl" and isinstance(subject, ast.Attribute) and subject.attr == "post_process":
        return Ref("instance", layout.POSTPROCESS_NODE, False, "`post_process` of a schedule plan")
    return None


def _by_method(resolver: Resolver, subject: ast.expr, name: str, value: ast.expr) -> Ref | None:
    """The class that alone has a method of the name that is bound."""
    if resolver.related and is_bound_method(value) and (owner := api.unique_method_owner(name)):
        last = last_attribute(subject).lower()
        # A plain word needs the object's name to say the same: `router.gating`.
        if "_" in name.strip("_") or (last and last.strip("_") in owner.rpartition(".")[2].lower()):
            return Ref("instance", owner, False, f"the name `{name}`, a method of Megatron Core alone")
    return None


def _possible(site: Site, resolver: Resolver, subject: ast.expr, name: str, value: ast.expr) -> Ref | None:
    """The class an object may be of, by the method that is replaced."""
    if is_test(resolver.model.path) or name.startswith("__") or not imports_megatron(resolver):
        return None
    bound = is_bound_method(value)
    if not bound and not is_function(site, resolver, value):
        return None
    own = _annotated_self(site, resolver, value) if isinstance(value, ast.Call) else None
    cls = own[1].expr(own[0]) if own is not None else None
    if cls is not None and cls.kind == "external" and not cls.name.endswith("Module"):
        return None  # a function that says it is for a class of another library, as `torch.optim.Optimizer`
    called = last_name(subject).lower()
    if called.endswith(("config", "args", "tokenizer")):  # fields, not methods; and what has methods of its own
        return None
    owner = api.method_owner(name)
    if owner is None and "optimizer" in called and api.has_callable(layout.OPTIMIZER, name):
        owner = layout.OPTIMIZER
    if name == "forward" or (bound and owner is None and api.has_callable(MODULE, name)):
        owner = MODULE
    if owner is None or _is_foreign(subject, site, resolver):
        return None
    kind = "class" if is_class_of_object(subject) else "instance"
    what = "method" if api.has_callable(owner, name) else "attribute"
    return Ref(kind, owner, False, f"the {what} `{name}`, in a file that imports Megatron", possible=True)


def imports_megatron(resolver: Resolver) -> bool:
    """Whether a file itself imports something of Megatron's."""
    data = resolver.model.data
    return resolver.kept(imports_megatron, lambda: b"megatron" in data and _IMPORTS_MEGATRON.search(data) is not None)


def is_class_of_object(node: ast.expr) -> bool:
    """`x.__class__` and `type(x)`."""
    if isinstance(node, ast.Attribute):
        return node.attr == "__class__"
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type"


def _is_foreign(subject: ast.expr, site: Site, resolver: Resolver) -> bool:
    """Whether an object is imported or defined, so that it has a type, or made by another library."""
    while isinstance(subject, ast.Attribute | ast.Subscript):
        subject = subject.value
    if isinstance(subject, ast.Call):
        subject = subject.args[0] if subject.args else subject.func
    scope = site.scope.home_of(subject.id) if isinstance(subject, ast.Name) else None
    if scope is None or not isinstance(subject, ast.Name):
        return True
    for binding in scope.bindings[subject.id]:
        if isinstance(binding.node, _DEFINED):
            return True
        maker = binding.node.func if isinstance(binding.node, ast.Call) else None
        if binding.kind == "narrow" and site.block.within(binding.block):
            maker = binding.node if isinstance(binding.node, ast.expr) else None
        made = resolver.at_binding(binding, scope).expr(maker) if maker is not None else None
        if made is not None and made.kind == "external":
            head = made.name.partition(".")[0]
            if head != "megatron" and head not in sys.stdlib_module_names:
                return True
    return False
