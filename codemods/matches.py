"""From what a codemod finds in a file to findings, and back from a finding to the place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.quote import Quote
from mcore_unpatch.findings import FileError, Finding
from mcore_unpatch.scanner.sources.parsing import Unreadable

if TYPE_CHECKING:
    from mcore_unpatch.codemods.codemod import Codemod, Match
    from mcore_unpatch.codemods.edits import Repository
    from mcore_unpatch.codemods.source import Source


def findings(codemod: Codemod, project: Repository) -> Iterator[Finding | FileError]:
    """A finding for each match in the files that say one of the codemod's words."""
    for path in project.paths:
        try:
            data = project.data(path)
            source = project.source(path) if codemod.says(data) else None
        except Unreadable as error:
            yield FileError(path, str(error))
            continue
        except OSError:
            continue
        if source is not None:
            yield from (finding for finding, _ in matches(codemod, source))


def matches(codemod: Codemod, source: Source) -> Iterator[tuple[Finding, Match]]:
    """What a codemod finds in a file, each as a finding too."""
    quote = Quote(source)
    for match in codemod.find(source):
        seams = [rule.seam for rule in codemod.rules if rule.code == match.rule]
        if not seams:
            raise ValueError(f"it found {match.rule!r}, which is none of its rules")
        said = (match.target, match.message, match.instead)
        yield quote.finding(match.node, match.rule, codemod.shape, seams[0], *said), match
