"""Compare the objects of a model with their classes: methods bound over, submodules swapped, hooks registered.

A model may be wrapped (DDP, Float16Module, FSDP, a vision-language model) or be the list of chunks of a virtual
pipeline: every module in it is looked at, under its path.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from mcore_unpatch.audit.origin import OURS, CodeOrigin, code_of, maker_of, origin_of
from mcore_unpatch.audit.report import Deviation, ModelHook
from mcore_unpatch.megatron.versions import within

_HOOKS = {
    "_forward_pre_hooks": "forward pre-hook",
    "_forward_hooks": "forward hook",
    "_backward_pre_hooks": "backward pre-hook",
    "_backward_hooks": "backward hook",
}
_NO_PATCH = ("torch", OURS)  # torch.compile and our replacements put nothing over a method that changes what it gives


def deviations(model: Any) -> tuple[list[Deviation], list[ModelHook]]:
    """What a model, or its chunks, holds that its classes and their constructors do not say; and foreign hooks."""
    where: dict[tuple[str, str, CodeOrigin], list[str]] = defaultdict(list)
    hooks = []
    chunks = chunks_of(model)
    for number, chunk in enumerate(chunks):
        first = f"chunk{number}" if len(chunks) > 1 else ""
        for inner, module in chunk.named_modules():
            path = ".".join(filter(None, (first, inner)))
            for name, value in _bound_over(module):
                where["instance", name, maker_of(value)].append(path)
            for name, value in _swapped(module):
                where["submodule", name, origin_of(type(value))].append(path)
            for field, kind in _HOOKS.items():
                origins = map(origin_of, list((getattr(module, field, None) or {}).values()))
                foreign = (origin for origin in origins if not origin.of_megatron and origin.package != "torch")
                hooks += [ModelHook(path, kind, origin) for origin in foreign]
    return [Deviation(kind, name, by, where=tuple(paths)) for (kind, name, by), paths in where.items()], hooks


def chunks_of(model: Any) -> list[Any]:
    """The chunks of a model: itself, where it is one module."""
    return list(model) if isinstance(model, Sequence) else [model]


def _bound_over(module: Any) -> Iterator[tuple[str, Any]]:
    """Functions in an object's own dictionary that hide a method of a Megatron class."""
    bases = type(module).__mro__
    first = next((cls for cls in bases if within(cls.__module__)), None)
    if first is None:
        return
    for name, value in vars(module).items():
        if not callable(value) or code_of(getattr(type(module), name, None)) is None:
            continue
        origin = maker_of(value)
        if not origin.of_megatron and origin.package not in _NO_PATCH:
            owner = next(cls for cls in bases if name in vars(cls))
            owner = owner if within(owner.__module__) else first
            yield f"{owner.__module__}.{owner.__qualname__}.{name}", value


def _swapped(module: Any) -> Iterator[tuple[str, Any]]:
    """Children of another class than the constructor names. What a ModuleSpec decides is nobody's patch."""
    for name, child in module._modules.items():
        if child is None or within(type(child).__module__) or type(child).__module__.startswith(f"{OURS}."):
            continue
        for cls in type(module).__mro__:
            made = _made_by_constructor(cls).get(name) if within(cls.__module__) else None
            if made:
                if not isinstance(child, made):
                    yield f"{cls.__module__}.{cls.__qualname__}.{name}", child
                break


@cache
def _made_by_constructor(cls: type) -> dict[str, tuple[type, ...]]:
    """The classes that `__init__` builds for each attribute; nothing for one that it also gets in another way."""
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if module is None or not file:
        return {}
    tree = ast.parse(Path(file).read_bytes())
    body = next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__), tree)
    made: dict[str, set[Any]] = defaultdict(set)
    chosen: dict[str, list[ast.expr]] = defaultdict(list)  # what local names stand for
    for node in ast.walk(body):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            chosen[node.targets[0].id].append(node.value)
    for node in ast.walk(body):
        if not isinstance(node, ast.Assign) or (isinstance(node.value, ast.Constant) and node.value.value is None):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                called = [node.value.func] if isinstance(node.value, ast.Call) else [node.value]
                made[target.attr].update(_named(value, module) for value in _alternatives(called, chosen))
    certain = {name: classes for name, classes in made.items() if None not in classes}
    return {name: tuple(cls for cls in classes if isinstance(cls, type)) for name, classes in certain.items()}


def _alternatives(values: list[ast.expr], chosen: dict[str, list[ast.expr]]) -> Iterator[ast.expr]:
    """An expression, or those it chooses among: `a if b else c`, a local name."""
    for value in values:
        if isinstance(value, ast.IfExp):
            yield from _alternatives([value.body, value.orelse], chosen)
        elif isinstance(value, ast.Name) and value.id in chosen:
            yield from _alternatives(chosen[value.id], {})
        else:
            yield value


def _named(value: ast.expr, module: Any) -> Any:
    """What a dotted name stands for in a module; None for anything else, a function among them."""
    held: Any = module
    for part in ast.unparse(value).split("."):
        held = getattr(held, part, None) if part.isidentifier() else None
    return None if code_of(held) is not None else held
