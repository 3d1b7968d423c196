"""Assertions for the start of a job: this patch is there, nobody patches that."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from mcore_unpatch.audit import instances, names
from mcore_unpatch.audit.origin import is_megatron
from mcore_unpatch.audit.report import Deviation


class AuditError(RuntimeError):
    """Megatron is not as the job expects it; the message names who changed it."""


def forbid(*targets: str, model: Any = None) -> None:
    """Raise unless Megatron is as installed: all of it, or these names and what is in them.

    A target is a dotted name, whole (`megatron.core.parallel_state`) or its end (`GPTModel`, `GPTModel.forward`).
    """
    seen = _about(targets, model)
    if seen:
        raise AuditError("\n".join(["Megatron is patched, and this job forbids it:", *(f"  {one}" for one in seen)]))


def expect(*targets: str, by: str = "", model: Any = None) -> None:
    """Raise unless each target is patched: by the package `by`, if given, and on every chunk of the model, if given."""
    if not targets:
        raise ValueError("expect() needs the names that are to be patched, such as 'GPTModel.forward'")
    chunks = [None]
    if model is not None:
        chunks = instances.chunks_of(model)
    missing = []
    for number, chunk in enumerate(chunks):
        of_chunk = f" on chunk {number} of {len(chunks)}" if len(chunks) > 1 else ""
        for target in targets:
            seen = [deviation for deviation in _about([target], chunk) if deviation.kind != "stale"]
            if not seen:
                missing.append(f"  {target} is Megatron's own{of_chunk}")
            elif by and not any(_is_by(deviation, by) for deviation in seen):
                missing.append(f"  {target} is not {by}'s{of_chunk}: {seen[0]}")
    if missing:
        raise AuditError("\n".join(["A patch that this job expects is absent:", *missing]))


def matches(name: str, target: str) -> bool:
    """Whether a dotted name is a target or lies in it."""
    return f".{name}.".startswith(f".{target}.") if is_megatron(target) else f".{target}." in f".{name}."


def _is_by(deviation: Deviation, package: str) -> bool:
    origins = (deviation.by, *deviation.order)
    return any(
        f"{origin.package}.".startswith(f"{package}.") or f"{origin.name}.".startswith(f"{package}.")
        for origin in origins
    )


def _about(targets: Any, model: Any) -> list[Deviation]:
    """What deviates in the targets; only the modules that can hold them are read."""
    modules = [module for module in names.loaded_modules().values() if not targets or _may_hold(module, targets)]
    seen = names.deviations(modules)
    if model is not None:
        seen += instances.deviations(model)[0]
    unknown = [target for target in targets if not _exists(target, modules, seen)]
    if unknown:
        raise ValueError(
            f"{unknown[0]} is no name of the Megatron in this process; "
            "write it as in `GPTModel.forward` or `megatron.core.parallel_state`, after the module is imported"
        )
    return [one for one in seen if not targets or any(matches(one.name, target) for target in targets)]


def _may_hold(module: ModuleType, targets: Any) -> bool:
    for target in targets:
        if is_megatron(target):
            if f"{module.__name__}.".startswith(f"{target}.") or f"{target}.".startswith(f"{module.__name__}."):
                return True
        else:
            if f".{target.partition('.')[0]}." in f".{module.__name__}.":  # the end of a module's name: `utils.f`
                return True
            held = vars(module).get(target.partition(".")[0])
            if held is not None and getattr(held, "__module__", module.__name__) == module.__name__:
                return True
            if held is not None and not is_megatron(getattr(held, "__module__", "") or ""):
                return True
    return False


def _exists(target: str, modules: list[ModuleType], seen: list[Deviation]) -> bool:
    if any(matches(deviation.name, target) for deviation in seen) or target in sys.modules:
        return True
    for module in modules:
        inner = target.removeprefix(f"{module.__name__}.")
        if is_megatron(inner):
            if f"{module.__name__}.".startswith(f"{inner}."):
                return True
            continue
        held: Any = module
        for part in inner.split("."):
            held = getattr(held, part, None)
        if held is not None:
            return True
    return False
