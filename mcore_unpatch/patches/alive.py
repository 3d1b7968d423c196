"""On which releases a patch is made: where its place is reached, and the place of the call that makes it."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mcore_unpatch.code.library import Release
from mcore_unpatch.code.reached import Guards, Reached
from mcore_unpatch.code.syntax import spelled
from mcore_unpatch.code.values import Kind
from mcore_unpatch.code.worth import Given, both
from mcore_unpatch.patches.records import Patch


def alive(guards: Guards, patch: Patch, releases: Sequence[Release]) -> list[bool | None]:
    """Whether a patch is made, release by release."""
    given = _given(patch)
    return [_on(guards, patch, release, given) for release in releases]


def _on(guards: Guards, patch: Patch, release: Release, given: Given) -> bool | None:
    write = patch.write
    subject = None
    if write is not None and (path := spelled(write.base)):
        subject = (path, patch.target.rpartition(".")[0])
    run = Reached(guards, release, subject)
    truths = [run.at(patch.place)]
    if write is not None and write.place is not patch.place:
        truths.append(run.at(write.place, given))
    if isinstance(patch.place, ast.Constant):  # a row: the table may be asked under conditions
        truths.append(True)
    return both(truths)


def _given(patch: Patch) -> Given:
    """What the names at the write stand for, as far as that is one thing."""
    found: Given = {}
    for key, values in (patch.frame or {}).items():
        if len(values) == 1:
            found[key] = values[0].name if values[0].kind == Kind.TEXT else values[0]
    return found
