"""What a replacement takes and never uses: Megatron's output hook, or a keyword that a newer release passes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from mcore_unpatch.judge.statement import CHANGES, Statement
from mcore_unpatch.library.fact import Call, Parameters, quoted
from mcore_unpatch.library.model import Model, Usage
from mcore_unpatch.megatron import known, layout
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.scanner.related.replacement import Replacement
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode


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
    function, was = new.function, known.name_on(old, install.target)
    if function is None or taken is None or old.find(was) is None:
        return  # or there is nothing that it passed before
    hook = Usage("", "", call=Call(0, layout.HOOK_ARGUMENTS))  # which is told apart
    passed = (
        one for one in now.calls(known.name_on(now, install.target)) if not _holds_its_own(one.place, install, now)
    )
    for text, caller in swallowed(function, taken, [hook, *old.calls(was)], passed, now):
        yield Statement(CHANGES, text, line=getattr(install.node, "lineno", 0), caller=caller)


def swallowed(
    function: FunctionNode | ast.Lambda, taken: Parameters, before: Iterable[Usage], now: Iterable[Usage], model: Model
) -> Iterator[tuple[str, str]]:
    """That `**rest` of a function swallows what the first of some calls passes and none did before, and who calls."""
    rest = function.args.kwarg.arg if function.args.kwarg is not None else ""
    then = {*taken.names, *(name for usage in before if usage.call for name in usage.call.keywords)}
    for usage in now if rest else ():
        fresh = [name for name in usage.call.keywords if name not in then] if usage.call is not None else []
        if lost := [name for name in fresh if drops(function, rest, name)]:
            who = f"`{'.'.join(usage.place.split('.')[-2:])}` of megatron-core {model.label}"
            yield f"drops {quoted(lost)} in `**{rest}`, which {who} passes", usage.place
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
