"""A replacement that lacks parameters of a newer Megatron, or takes the hook and never calls it."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import AddParameters, Change, above
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
from mcore_unpatch.codemods.syntax import body_of, is_name, parameters
from mcore_unpatch.megatron.facts import HOOK_ARGUMENTS, HOOK_CARRIERS, HOOK_SINCE
from mcore_unpatch.megatron.known import called_with, first_parameters

PROCESSOR = HOOK_ARGUMENTS[0]
NOTE = "a stop-gap: the patch stays, and the next release may break it again"


def close_gap(patch: Patch) -> Rewritten | None:
    """The replacement with the parameters it lacks, and one that refuses the hook instead of dropping it."""
    function, attribute, version = patch.function, patch.target.attr, patch.situation.options.target
    expected = called_with(f"{patch.owner}.{attribute}", version)
    if function is None or expected is None or attribute not in {"forward", "_postprocess", "build_schedule_plan"}:
        return None
    names = set(parameters(function))
    missing = [] if function.args.kwarg else [name for name in expected.names if name not in names]
    if not set(missing).isdisjoint(first_parameters(f"{patch.owner}.{attribute}")):
        return None  # its parameters have other names: what belongs where is not to be seen
    carries = (patch.owner, attribute) in HOOK_CARRIERS and version >= HOOK_SINCE
    calls = any(is_name(one, PROCESSOR) for one in ast.walk(function))
    changes: list[Change] = []
    if missing:
        changes.append(AddParameters(function, tuple(f"{name}=None" for name in missing)))
    if carries and not calls and PROCESSOR in {*names, *missing}:
        text = (
            f'if {PROCESSOR} is not None:\n    raise NotImplementedError("this {attribute} does not run `{PROCESSOR}`")'
        )
        changes.append(above(patch.source, (body_of(function) or function.body)[0], text))
    return Rewritten(changes, notes=[NOTE])
