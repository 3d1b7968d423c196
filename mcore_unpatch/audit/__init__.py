"""Is the Megatron of this process the one that is installed? See docs/audit.md.

    from mcore_unpatch import audit

    audit.watch()                  # first in the program: records who rebinds what, with the stack
    ...
    print(audit.audit(model))      # what is not as the wheel defines it, and by whom
    audit.forbid("GPTModel")       # raises, and names the culprit

Nothing here patches anything, and importing it imports neither torch nor Megatron.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from types import ModuleType
from typing import Any

from mcore_unpatch.audit import instances, names, wheel
from mcore_unpatch.audit.hook import HookOutcome, hook_works
from mcore_unpatch.audit.origin import matches
from mcore_unpatch.audit.report import AuditReport, Deviation, ModelHook, Rebinding, this_rank
from mcore_unpatch.audit.watching import seen_so_far, watch

__all__ = [
    "AuditError", "AuditReport", "Deviation", "HookOutcome", "ModelHook", "Rebinding", "audit", "expect", "forbid",
    "hook_works", "watch",
]  # fmt: skip


def audit(model: Any = None, *, files: bool = True) -> AuditReport:
    """Compare the Megatron of this process with the installed wheel; with a model (or its chunks), its instances too.

    `files=False` leaves out the comparison of the installed files with the wheel's RECORD.
    """
    modules = names.loaded_modules()
    report = AuditReport(rank=this_rank(), deviations=names.deviations(modules.values()))
    report.deviations += names.replaced_modules()
    if "megatron.core" in modules:
        report.release = str(getattr(modules["megatron.core"], "__version__", "")).partition("+")[0]
    else:
        report.notes.append("megatron.core is not imported in this process, so there is nothing to compare yet.")
    if files:
        changed, notes = wheel.changed_files()
        report.deviations += changed
        report.notes += notes
    if model is not None:
        deviations, report.hooks = instances.deviations(model)
        report.deviations += deviations
    report.rebindings = seen_so_far()
    return report


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
    chunks = [None] if model is None else instances.chunks_of(model)
    missing = []
    for number, chunk in enumerate(chunks):
        of_chunk = f" on chunk {number} of {len(chunks)}" if len(chunks) > 1 else ""
        deviations = [deviation for deviation in _about(targets, chunk) if deviation.kind != "stale"]
        for target in targets:
            seen = [deviation for deviation in deviations if matches(deviation.name, target)]
            origins = [origin for deviation in seen for origin in (deviation.by, *deviation.order)]
            whose = (f"{name}." for origin in origins for name in (origin.package, origin.name))
            if not seen:
                missing.append(f"  {target} is Megatron's own{of_chunk}")
            elif by and not any(name.startswith(f"{by}.") for name in whose):
                missing.append(f"  {target} is not {by}'s{of_chunk}: {seen[0]}")
    if missing:
        raise AuditError("\n".join(["A patch that this job expects is absent:", *missing]))


def _about(targets: Sequence[str], model: Any) -> list[Deviation]:
    """What deviates in the targets."""
    modules = list(names.loaded_modules().values())
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


def _exists(target: str, modules: list[ModuleType], seen: list[Deviation]) -> bool:
    if any(matches(deviation.name, target) for deviation in seen) or target in sys.modules:
        return True
    for module in modules:
        with suppress(AttributeError):
            attrgetter(target.removeprefix(f"{module.__name__}."))(module)
            return True
    return False
