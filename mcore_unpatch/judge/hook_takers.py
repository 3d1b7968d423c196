"""Models that keep the output hook from arriving: subclasses of Megatron's models, and wrappers around them.

No patch, but whoever passes `output_processor` gets a TypeError, or nothing at all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.findings.finding import SUBCLASS, WRAPPER, Finding
from mcore_unpatch.judge.dropped import keeps_out
from mcore_unpatch.library.syntax import parameters_of, sets_attribute
from mcore_unpatch.megatron import api, known, layout
from mcore_unpatch.megatron.versions import RELEASES, Version
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.bindings import own_class
from mcore_unpatch.scanner.names.expressions import methods, own_attribute
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.sources.nodes import call_written, walk
from mcore_unpatch.scanner.sources.quoting import Text
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope

RULE = "MCU105"
_METHODS = ("forward", "_postprocess")
_WITHOUT_HOOK = {layout.HYBRID_MODEL, layout.MAMBA_MODEL}


def findings_in(resolver: Resolver, versions: tuple[Version, ...], text: Text) -> list[Finding]:
    """The methods of a file that take the hook and drop it, or refuse it."""
    if not any(version >= layout.HOOK_SINCE for version in versions):
        return []
    return [found for node, scope in resolver.model.classes.items() for found in _of_class(node, scope, resolver, text)]


def _of_class(node: ast.ClassDef, scope: Scope, resolver: Resolver, text: Text) -> Iterator[Finding]:
    own = methods(node)
    if not own.keys() & set(_METHODS) or scope.parent is None:
        return
    ref = own_class(node, resolver)
    base = ref.name if ref.is_core and ref.sure else None
    for name in _METHODS:
        function = own.get(name)
        if function is None:
            continue
        if base is not None and _has_output(base) and not _is_headless(own.get("__init__"), base):
            # Megatron's own `_postprocess` takes both; one of the class is asked for itself.
            inner = call_written(function, f"super().{name}")
            inner = inner or (None if "_postprocess" in own else call_written(function, "self._postprocess"))
            yield from _finding(node, function, base, SUBCLASS, inner, resolver, text)
        elif (
            name == "forward"
            and (base is None or not _has_output(base))
            and (held := _held_model(node, function, resolver))
        ):
            model, inner = held
            yield from _finding(node, function, model, WRAPPER, inner, resolver, text)


def _has_output(model: str) -> bool:
    """Whether a class is a model whose output the hook is for."""
    return model in _WITHOUT_HOOK or layout.GPT_MODEL in api.ancestry(model)


def _is_headless(init: FunctionNode | None, model: str) -> bool:
    """Whether a class builds its base without the last stage: it returns hidden states, and there is no hook."""
    call = call_written(init, "super().__init__") if init is not None else None
    if call is None:
        return False
    names = known.parameter_names(model, known.model(RELEASES[-1])) or ()
    given = {**dict(zip(names[1:], call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
    last = given.get("post_process")
    return isinstance(last, ast.Constant) and last.value is False


def _held_model(node: ast.ClassDef, function: FunctionNode, resolver: Resolver) -> tuple[str, ast.Call] | None:
    """The model that a `forward` calls: `self.language_model(...)`."""
    for call in walk(function):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if isinstance(call.func.value, ast.Name) and call.func.value.id == "self":
                ref = own_attribute(own_class(node, resolver), call.func.attr)
                if ref is not None and ref.kind == "instance" and ref.sure and _has_output(ref.name):
                    return ref.name, call
    return None


def _finding(
    node: ast.ClassDef,
    function: FunctionNode,
    model: str,
    shape: str,
    inner: ast.Call | None,
    resolver: Resolver,
    text: Text,
) -> Iterator[Finding]:
    said, may_lack = keeps_out(function), model in _WITHOUT_HOOK or function.args.vararg is not None
    if not said or (may_lack and layout.HOOK_ARGUMENTS[0] not in parameters_of(function)):
        return
    place, own = f"`{node.name}.{function.name}`", "self" if shape == WRAPPER else ""  # which is not the model's
    steps = (
        f"Give {place} (line {function.lineno}) the parameters `output_processor=None, output_processor_context=None`.",
        f"Pass both on in the call on line {inner.lineno}: Megatron takes them since 0.18."
        if inner is not None and sets_attribute(node, "post_process", own) is None
        else "Call the processor with the hook's keywords, if there is one, where the output is made.",
    )
    yield Finding(
        rule=RULE,
        path=resolver.model.path,
        line=function.lineno,
        column=text.characters(function.lineno, function.col_offset) + 1,
        end_line=function.lineno,
        target=f"{model}.{function.name}",
        shape=shape,
        seam="output",
        message=f"{place} {said}",
        replacement="take `output_processor` and `output_processor_context`, and hand both on (megatron-core 0.18+)",
        in_test=is_test(resolver.model.path),
        steps=steps,
        source=text.between(function.lineno, function.lineno),
    )
