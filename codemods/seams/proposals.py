"""For every finding with a seam that no downstream's move has taken: a proposed edit, or the steps to take."""

from __future__ import annotations

from collections.abc import Sequence

from mcore_unpatch.codemods.changes import Change, Reason
from mcore_unpatch.codemods.edits import Applicability, Edit, Options, Remark
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.seams import detach, passthrough
from mcore_unpatch.codemods.seams.patch import Patch, find_patch
from mcore_unpatch.codemods.seams.signature import close_gap
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import Finding
from mcore_unpatch.scanner.source import Unreadable

LM_HEAD = "MCU103"


def propose(repository: Workbench, findings: Sequence[Finding], options: Options, taken: Sequence[Edit]) -> Outcome:
    """Edits (unsafe: they change what somebody wrote), and remarks for the LM-head wrappers of no known form."""
    return _Proposer(repository, options, taken).outcome(findings)


class _Proposer:
    def __init__(self, repository: Workbench, options: Options, taken: Sequence[Edit]) -> None:
        self.repository, self.options = repository, options
        self.editable = frozenset(repository.paths)
        self.found = Outcome()
        self.taken: dict[str, list[tuple[int, int]]] = {}
        for edit in taken:
            self.taken.setdefault(edit.path, []).append((edit.start, edit.end))
        self.sources: dict[str, Source] = {}

    def outcome(self, findings: Sequence[Finding]) -> Outcome:
        for finding in findings:
            if finding.seam in {"output", "mtp", "schedule"} and finding.path.endswith(".py"):
                self._one(finding)
        return self.found

    def _one(self, finding: Finding) -> None:
        source = self._source(finding.path)
        patch = find_patch(finding, source) if source else None
        if patch is not None and finding.path in self.editable:
            if finding.rule == LM_HEAD:
                if self._lm_head(patch):
                    return
            elif self._detach(patch):
                return
            else:
                self._gap(patch)
        if finding.rule == LM_HEAD:
            self.found.remarks.append(Remark(finding.path, finding.line, LM_HEAD, "by-hand", passthrough.STEPS))

    def _source(self, path: str) -> Source | None:
        if path not in self.sources:
            try:
                self.sources[path] = Source(path, self.repository.data(path))
            except (Unreadable, OSError):
                return None
        return self.sources[path]

    def _lm_head(self, patch: Patch) -> bool:
        changes = passthrough.to_hook(patch)
        if not changes:
            return False
        title = "the passthrough runs in the hook"
        made = self._edit(patch, changes, "unsafe", title, passthrough.NOTES)
        if made:
            reason = Reason(LM_HEAD, "unsafe", title, passthrough.NOTES, patch.finding.line)
            self.repository.imports(patch.source.path).add(passthrough.COMPAT, ["attach"], reason)
            if self.options.unsafe_fixes:
                self.found.removes.append(patch.finding)
        return made

    def _detach(self, patch: Patch) -> bool:
        change = detach.by_config(patch, self.options.target)
        if change is None:
            return False
        # Where the patch is undone somewhere, that line would be left alone with nothing to undo.
        undone = any(related.role == "restore" for related in patch.finding.related)
        level: Applicability = "display" if undone else "unsafe"
        made = self._edit(patch, [change], level, "`config.mtp_detach_heads` detaches", detach.NOTES)
        if made and level == "unsafe" and self.options.unsafe_fixes:
            self.found.removes.append(patch.finding)
        return made

    def _gap(self, patch: Patch) -> None:
        changes = close_gap(patch, self.options.target)
        notes = ("a stop-gap: the patch stays, and the next release may break it again",)
        self._edit(patch, changes, "unsafe", f"fits the signature of {patch.target.attr}", notes)

    def _edit(
        self, patch: Patch, changes: list[Change], level: Applicability, title: str, notes: tuple[str, ...]
    ) -> bool:
        """Make edits of the changes, unless one of them touches what is taken already."""
        path = patch.source.path
        spans = [(change.span.start, change.span.end) for change in changes]
        taken = self.taken.setdefault(path, [])
        if not changes or any(start < end_ and start_ < end for start, end in spans for start_, end_ in taken):
            return False
        taken += spans
        reason = Reason(patch.finding.rule, level, title, notes, patch.finding.line)
        self.found.edits += [reason.edit(patch.source, change.span, change.text) for change in changes]
        return True
