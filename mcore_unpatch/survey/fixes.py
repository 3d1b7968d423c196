"""Which findings `unpatch migrate` would do something about: asked of the codemods themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from mcore_unpatch import rewrites
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.scanner.sources.parsing import why_not

if TYPE_CHECKING:
    from mcore_unpatch.editing.edits import Options, Repository
    from mcore_unpatch.survey.survey import Survey

_ODD = re.compile(rb"\f|\r(?!\n)")  # without these, libcst gives a file back as it was


def may_be_fixed(finding: Finding) -> bool:
    """Whether a codemod may know what to do: else none is loaded."""
    if finding.shape == "patch-file":
        return False
    never_runs = bool(finding.target) and finding.verdict == "delete"
    return finding.can_move or never_runs or finding.rule in rewrites.answered()


def assessed(survey: Survey) -> list[Finding]:
    """The findings with what `migrate` would do about each, and what becomes of them so."""
    return survey.settled(_marked(survey))


def _marked(survey: Survey) -> list[Finding]:
    """The findings with `fix` set: `safe`, `unsafe`, or None where a person has to do it."""
    findings, choices = survey.findings, [planned(survey, unsafe=unsafe) for unsafe in (True, False)]
    editable = survey.found.editable
    while True:
        repository, known = survey.downstreams(editable)
        fixes, held = dict[Finding, str](), dict[Finding, str]()
        both = rewrites.fixed(repository, [*findings, *survey.elsewhere], choices, known)
        for name, (gone, left) in zip(("unsafe", "safe"), both, strict=True):
            fixes.update(dict.fromkeys(gone, name))
            held.update(left)
        broken = _left(repository, {finding.path for finding in fixes if finding.path in editable})
        if not broken:
            told = (
                replace(finding.assessment, fix=fixes.get(finding), left_because=held.get(finding, ""))
                for finding in findings
            )
            return [replace(finding, assessment=each) for finding, each in zip(findings, told, strict=True)]
        editable -= broken


def planned(survey: Survey, *, unsafe: bool, annotate: bool = False) -> Options:
    """What a migration of the files of a survey may do."""
    from mcore_unpatch.editing.edits import Options

    stacks = survey.stacks
    return Options(
        unsafe,
        annotate,
        survey.options.selection,
        survey.version,
        stacks.pinned,
        stacks.unsure,
        stacks.before_the_hook,
    )


def _left(repository: Repository, paths: Iterable[str]) -> set[str]:
    """The files that `migrate` leaves, because they do not compile as they are or libcst does not give them back."""
    python = [path for path in paths if path.endswith(".py")]
    broken = {path for path in python if why_not(repository.data(path), path)}
    odd = [path for path in python if path not in broken and _ODD.search(repository.data(path))]
    return broken | rewrites.not_given_back(repository, odd) if odd else broken
