"""What a replacement takes and never uses: Megatron's output hook, or a keyword that a newer release passes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.judge.statement import CHANGES, Statement
from mcore_unpatch.library.fact import Parameters, quoted
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known, layout
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.scanner.related.replacement import Replacement
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.nodes import walk


def hook(install: Install, new: Replacement, model: Model, refused: bool) -> Iterator[Statement]:
    """The output hook, accepted and never called, or `refused`, which counts where nothing raises without it."""
    carries = (install.owner, install.attribute) in layout.HOOK_CARRIERS
    accepted = new.parameters
    if not carries or parse_version(model.label) < layout.HOOK_SINCE or accepted is None or new.function is None:
        return
    names, any_keyword = accepted
    name = layout.HOOK_ARGUMENTS[0]
    kwarg = new.function.args.kwarg
    line = getattr(install.node, "lineno", 0)
    if name in names and not new.uses(name):
        yield Statement(CHANGES, f"accepts `{name}` but never calls it, so hooks are silently dropped", line=line)
    elif name not in names and any_keyword and kwarg is not None and drops(new.function, kwarg.arg, name):
        text = f"accepts `{name}` in `**{kwarg.arg}` but never calls it, so hooks are silently dropped"
        yield Statement(CHANGES, text, line=line)
    elif name not in names and not any_keyword and refused:
        yield Statement(CHANGES, f"takes no `{name}`: a TypeError for whoever passes the output hook", line=line)


def keywords(
    install: Install, new: Replacement, taken: Parameters | None, old: Model, now: Model
) -> Iterator[Statement]:
    """Keywords that the newer release passes and the older one did not: swallowed by `**kwargs`."""
    function = new.function
    if function is None or taken is None or not taken.any_keyword or function.args.kwarg is None:
        return
    was = known.name_on(old, install.target)
    if old.find(was) is None:
        return  # there is nothing that it passed before
    rest = function.args.kwarg.arg
    then = {name for usage in old.calls(was) if usage.call for name in usage.call.keywords}
    for usage in now.calls(known.name_on(now, install.target)):
        assert usage.call is not None
        if _holds_its_own(usage.place, install, now):
            continue
        fresh = [name for name in usage.call.keywords if name not in then and name not in taken.names]
        lost = [name for name in fresh if drops(function, rest, name) and name not in layout.HOOK_ARGUMENTS]
        if lost:
            who = ".".join(usage.place.split(".")[-2:])
            text = f"drops {quoted(lost)} in `**{rest}`, which `{who}` of megatron-core {now.label} passes"
            yield Statement(CHANGES, text, line=getattr(install.node, "lineno", 0), caller=usage.place)
            return


def _holds_its_own(place: str, install: Install, model: Model) -> bool:
    """Whether a caller imported the function by value: a patch of the module that defines it does not reach that."""
    if install.shape != "module-attr":
        return False
    module = place
    while module and ((fact := model.facts.get(module)) is None or fact.kind != "module"):
        module = module.rpartition(".")[0]
    bound = model.facts.get(f"{module}.{install.attribute}")
    return module != install.owner and bound is not None and bound.kind == "import"


def drops(function: ast.AST, rest: str, name: str) -> bool:
    """Whether `**rest` is read for other names alone: it is never handed on, nor asked for `name`."""
    nodes = list(walk(function))
    keys = [key for node in nodes if (key := _key(node, rest)) is not None]
    reads = sum(isinstance(node, ast.Name) and node.id == rest for node in nodes)
    return name not in keys and len(keys) == reads


def _key(node: ast.AST, rest: str) -> object:
    """The key of `rest["key"]`, `rest.get("key")`, `rest.pop("key")` and `"key" in rest`."""
    subject: ast.expr | None = None
    key: ast.expr | None = None
    match node:
        case ast.Subscript():
            subject, key = node.value, node.slice
        case ast.Call(func=ast.Attribute(attr="get" | "pop")) if node.args:
            subject, key = node.func.value, node.args[0]  # type: ignore[attr-defined]
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            subject, key = node.comparators[0], node.left
    named = isinstance(subject, ast.Name) and subject.id == rest
    return key.value if named and isinstance(key, ast.Constant) else None
