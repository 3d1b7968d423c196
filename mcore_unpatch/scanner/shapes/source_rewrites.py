"""Megatron's source text, changed: taken with inspect and exec'd, while it is imported, or by a table of texts."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.megatron import api
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.shapes.assignments import module_of
from mcore_unpatch.scanner.shapes.install import Install, parted
from mcore_unpatch.scanner.sources.callers import argument
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, Site, dict_owner, given_to, last_name

_FILE = re.compile(r"(?:^|/)(megatron/[\w/]+)\.py$")


def from_module(resolver: Resolver) -> list[Install]:
    """`inspect.getsource(X)` and `exec` in one function: one patch of X, at the `exec`."""
    installs = []
    for site in resolver.model.calls:
        subject = _source_subject(site)
        runner = resolver.execs.get(site.scope.function) if subject is not None else None
        if subject is None or runner is None:
            continue
        ref = resolver.at(site).expr(subject)
        if ref is not None and ref.is_core and given_to(subject, site.scope) is None:
            installs.append(
                Install(runner, runner.node, ref.name, "source-rewrite", ref.sure, ref.why, None, *parted(ref.name))
            )
    return installs


def from_exec(site: Site, resolver: Resolver) -> list[Install]:
    """`exec(text, module.__dict__)`: whatever the text defines is put into the module."""
    call = site.call
    if last_name(call.func) != "exec" or len(call.args) != 2:
        return []  # with a third argument, names go there
    holder = dict_owner(call.args[1])
    base = resolver.at(site).expr(holder) if holder is not None else None
    if base is None or not base.is_core or base.kind == "instance":
        return []
    owner = module_of(base).name
    names = resolver.once(_defined, call.args[0]) or ["*"]
    why = "a namespace that `exec` fills"
    return [Install(site, call, f"{owner}.{n}", "source-rewrite", n != "*", why, None, owner, n) for n in names]


def _defined(text: ast.expr) -> list[str]:
    """The functions and classes that a text defines, where it is written out."""
    try:
        body = ast.parse(text.value).body if isinstance(text, ast.Constant) and isinstance(text.value, str) else []
    except (SyntaxError, ValueError):
        return []
    return [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]


def from_finder(site: Site, resolver: Resolver) -> list[Install]:
    """`sys.meta_path.insert(0, finder)` in a file that names modules of Megatron: it may load them as it likes."""
    call = site.call
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"insert", "append", "extend"}:
        return []
    if resolver.at(site).text(call.func.value) not in {"sys.meta_path", "sys.path_hooks"}:
        return []
    modules = [module for module in map(_module, _texts(resolver.model.tree)) if module]
    why = f"a finder on `{ast.unparse(call.func.value)}` in a file that names the module"
    return [Install(site, call, m, "source-rewrite", False, why, None, *parted(m)) for m in dict.fromkeys(modules)]


def from_texts(site: Site) -> list[Install]:
    """`RULES = {"megatron/core/x.py": "- old\\n+ new"}`: texts for the files of Megatron's source."""
    table = site.value if isinstance(site.value, ast.Dict) else ast.Dict([], [])
    installs = []
    for key, value in zip(table.keys, table.values, strict=True):
        name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
        if (
            key is not None
            and _FILE.search(name)
            and (module := _module(name))
            and any("\n" in t for t in _texts(value))
        ):
            why = "a table of texts for files of Megatron's source"
            installs.append(Install(site, key, module, "source-rewrite", False, why, None, *parted(module)))
    return installs


def _texts(node: ast.AST) -> list[str]:
    return [part.value for part in walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def _module(text: str) -> str:
    """The module of Megatron that a text is the name or the file of."""
    file = _FILE.search(text)
    name = file[1].replace("/", ".").removesuffix(".__init__") if file else text
    known = api.lookup(name) if name.startswith("megatron.") else None
    return name if known is not None and known.kind == "module" else ""


def from_helper(site: Site, resolver: Resolver, home: Resolver, function: FunctionNode) -> list[Install]:
    """A call of a function of the repository that rewrites the source of what it is given."""
    call = site.call
    scope = home.model.functions[function]
    for inner in home.sites_in(function):
        subject = _source_subject(inner)
        if subject is None or inner.scope is not scope or scope.function not in home.execs:
            continue
        for name in _names_behind(subject, scope):
            passed = argument(call, function, name, False)
            ref = resolver.at(site).expr(passed) if passed is not None else None
            if ref is None or not ref.is_core:
                continue
            target = ref.name
            texts = [text for given in call.args for text in strings(given, resolver.at(site))]
            if ref.kind in {"class", "module"}:
                named = next((s for s in texts if s.isidentifier() and ref.has(s)), None)
                target = f"{ref.name}.{named}" if named else ref.name
            return [Install(site, call, target, "source-rewrite", ref.sure, ref.why, None, *parted(target))]
    return []


def _source_subject(site: Site) -> ast.expr | None:
    call = site.node
    if isinstance(call, ast.Call) and last_name(call.func) in {"getsource", "getsourcelines"}:
        return call.args[0] if call.args else None
    return None


def _names_behind(node: ast.AST, scope: Scope) -> list[str]:
    """The names an expression uses, and those that the local names among them were made from."""
    found: dict[str, None] = {}
    nodes = [node]
    for _ in range(4):
        names = [item.id for part in nodes for item in walk(part) if isinstance(item, ast.Name)]
        new = [name for name in dict.fromkeys(names) if name not in found]
        found.update(dict.fromkeys(new))
        bindings = [b for name in new for b in scope.bindings.get(name, ())]
        nodes = [binding.node for binding in bindings if binding.kind == "value" and binding.node is not None]
    return list(found)
