"""Is the Megatron of this process the one that is installed? See docs/audit.md.

    from mcore_unpatch import audit

    audit.watch()                  # first in the program: records who rebinds what, with the stack
    ...
    print(audit.audit(model))      # what is not as the wheel defines it, and by whom
    audit.forbid("GPTModel")       # raises, and names the culprit

Nothing here patches anything, and importing it imports neither torch nor Megatron.
"""

from __future__ import annotations

from typing import Any

from mcore_unpatch.audit import instances, names, wheel
from mcore_unpatch.audit.assertions import AuditError, expect, forbid
from mcore_unpatch.audit.hook import HookOutcome, hook_works
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
