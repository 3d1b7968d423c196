"""What a replacement takes and never uses: Megatron's output hook, or a keyword that a newer release passes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

from mcore_unpatch.judge.statement import CHANGES, Statement
from mcore_unpatch.library.fact import Call, Parameters, quoted
from mcore_unpatch.library.model import Model, Usage
from mcore_unpatch.megatron import known, layout
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.scanner.related.replacement import Replacement
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode

_REFUSES = "takes no"


def hook(
    install: Install, function: FunctionNode | ast.Lambda | None, model: Model, raises: bool
) -> Iterator[Statement]:
    """The output hook, taken and never used, or refused, which counts where nothing raises without it."""
    carries = (install.owner, install.attribute) in layout.HOOK_CARRIERS
    has_one = carries and parse_version(model.label) >= layout.HOOK_SINCE
    said = keeps_out(function) if has_one and function is not None else ""
    if said and not (raises and said.startswith(_REFUSES)):
        yield Statement(CHANGES, said, line=getattr(install.node, "lineno", 0))


def keeps_out(function: FunctionNode | ast.Lambda) -> str:
    """How a function keeps the output hook from arriving; empty where it does not."""
    spec, name = function.args, layout.HOOK_ARGUMENTS[0]
    unused = "but never calls it, so hooks are silently dropped"
    if name in {argument.arg for argument in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}:
        nodes = (node for node in walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load))
        return "" if any(node.id == name for node in nodes) else f"accepts `{name}` {unused}"
    if spec.kwarg is None:
        return f"{_REFUSES} `{name}`: a TypeError for whoever passes the output hook"
    return f"accepts `{name}` in `**{spec.kwarg.arg}` {unused}" if drops(function, spec.kwarg.arg, name) else ""


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
    reads = [node for node in nodes if isinstance(node, ast.Name) and node.id == rest]
    keys = [key for node in nodes if (key := key_asked(node, lambda read: read in reads)) is not None]
    return name not in keys and len(keys) == len(reads)


def key_asked(node: ast.AST, of: Callable[[ast.expr], bool]) -> object:
    """The key of `held["key"]`, `held.get("key")`, `held.pop("key")` and `"key" in held`, where that is the dict."""
    match node:
        case (
            ast.Subscript(value=held, slice=ast.Constant(value=key))
            | ast.Call(func=ast.Attribute(value=held, attr="get" | "pop"), args=[ast.Constant(value=key), *_])
            | ast.Compare(left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn()], comparators=[held])
        ) if of(held):
            return key
    return None
