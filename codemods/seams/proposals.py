"""For every finding with a seam that no downstream's move has taken: a proposed edit, or the steps to take."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from functools import cached_property

from mcore_unpatch.codemods import standing
from mcore_unpatch.codemods.changes import Asked, Change, Reason
from mcore_unpatch.codemods.edits import Applicability, Options, Remark
from mcore_unpatch.codemods.hook import is_fallback
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.seams import detach, value_head, wrapper
from mcore_unpatch.codemods.seams.copies import rewrite as copies
from mcore_unpatch.codemods.seams.lm_head.rewrite import COMPAT, to_hook
from mcore_unpatch.codemods.seams.lm_head.steps import steps
from mcore_unpatch.codemods.seams.patch import Function, Patch, find_patch
from mcore_unpatch.codemods.seams.signature import close_gap
from mcore_unpatch.codemods.source import Source, Span
from mcore_unpatch.codemods.standing import Staying
from mcore_unpatch.codemods.units import units
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import DOWNSTREAM, OFFER, Finding
from mcore_unpatch.megatron.facts import HOOK_SINCE
from mcore_unpatch.megatron.versions import show
from mcore_unpatch.paths import is_test
from mcore_unpatch.scanner.sources.parsing import Unreadable

LM_HEAD = "MCU103"
FORWARD = "MCU101"
VALUE_HEAD = "MCU501"
_SEAMS = {"output", "mtp", "schedule", "value-head", "hook"}
MTP_WRAPPER = "mtp-pre-hook"  # a row of what Megatron answers
# Each is looked at with all of its file; no file that people write has so many.
_MOST = 100
_TOO_MANY = f"no rewrite is proposed for a file with more than {_MOST} patches: split it, or migrate by hand"
_FALLBACK = (
    "only models without `output_processor` come here, which megatron-core 0.18 and later have none of: once nothing "
    "older is supported, delete this branch, what it installs, and the tests of it"
)


def propose(
    repository: Workbench, findings: Sequence[Finding], options: Options, taken: Sequence[Asked], staying: Staying
) -> Outcome:
    """Edits (unsafe: they change what somebody wrote), and remarks for the LM-head wrappers of no known form."""
    return _Proposer(repository, options, taken, staying).outcome(findings)


class _Proposer:
    def __init__(self, repository: Workbench, options: Options, taken: Sequence[Asked], staying: Staying) -> None:
        self.repository, self.options, self.staying = repository, options, staying
        self.found = Outcome()
        self.taken: dict[str, list[Span]] = {}
        for asked in taken:
            self.taken.setdefault(asked.path, []).append(asked.touches)
        self.wrapping: dict[str, list[Function]] = {}  # by path, the functions that patch a head

    def outcome(self, findings: Sequence[Finding]) -> Outcome:
        patches = (one for one in findings if one.shape not in (*DOWNSTREAM, OFFER))
        seams = [one for one in patches if one.seam in _SEAMS and one.path.endswith(".py")]
        number = Counter(one.path for one in seams)
        for finding in (one for one in seams if number[one.path] > _MOST):
            self.found.remarks.append(Remark(finding.path, finding.line, finding.rule, "left", _TOO_MANY))
        seams = [one for one in seams if number[one.path] <= _MOST]
        for finding in seams:
            source = self._source(finding.path) if finding.rule == LM_HEAD else None
            patch = find_patch(finding, source) if source else None
            if patch is not None and patch.around is not None:
                self.wrapping.setdefault(finding.path, []).append(patch.around)
        for finding in sorted(seams, key=lambda one: one.target not in copies.TARGETS):  # what others stand on
            self._one(finding)
        return self.found

    def _one(self, finding: Finding) -> None:
        source = self._source(finding.path)
        patch = find_patch(finding, source) if source else None
        editable = finding.path in self.repository.editable
        if source is not None and finding.rule == FORWARD and is_fallback(finding.line, units(source.tree)):
            self.found.remarks.append(Remark(finding.path, finding.line, FORWARD, "left", _FALLBACK))
            return
        if finding.rule == LM_HEAD:
            because = self._lm_head(patch) if patch is not None and editable else "it is not a plain assignment"
            if because:
                remark = Remark(finding.path, finding.line, LM_HEAD, "by-hand", steps(finding, because))
                self.found.remarks.append(remark)
        elif finding.rule == VALUE_HEAD:
            if finding.shape == "submodule":
                self._value_head(finding, patch if editable else None)
        elif finding.seam == "hook" or finding.answer == MTP_WRAPPER:
            because = self._wrapper(patch) if patch is not None and editable else "it is not a plain assignment"
            if because:
                text = wrapper.steps(finding, because)
                self.found.remarks.append(Remark(finding.path, finding.line, finding.rule, "by-hand", text))
        elif patch is not None and editable and not self._copy(patch) and not self._detach(patch):
            self._gap(patch)

    def _source(self, path: str) -> Source | None:
        try:
            return self.repository.source(path)
        except (Unreadable, OSError):
            return None

    def _lm_head(self, patch: Patch) -> str:
        """Propose the hook, or say why not."""
        if below := self.staying.below(patch.source.path, standing.HOOK):
            return standing.because(below, "the hook goes through it")
        rewrite = to_hook(patch, self.repository, self.wrapping.get(patch.source.path, []))
        if isinstance(rewrite, str):
            return rewrite
        title = "the model returns hidden states through the hook"
        if not self._edit(patch, rewrite.changes, "unsafe", title, rewrite.notes):
            return "another edit changes the same lines"
        reason = Reason(LM_HEAD, "unsafe", title, rewrite.notes, patch.finding.line)
        self.repository.imports(patch.source.path).add(COMPAT, rewrite.names, reason)
        if self.options.unsafe_fixes:
            self.found.removes.append(patch.finding)
        return ""

    def _copy(self, patch: Patch) -> bool:
        """Propose a processor for a copy of Megatron's own forward, or say why not."""
        finding = patch.finding
        if finding.target not in copies.TARGETS or finding.seam == "schedule" or self.options.target < HOOK_SINCE:
            return False
        rewrite = copies.to_processor(patch, self.repository, self.options.target)
        others = Staying(tuple(one for one in self.staying.findings if one != finding))
        if isinstance(rewrite, copies.ToProcessor):
            if below := others.below(finding.path, standing.HOOK):
                rewrite = copies.steps(patch, standing.because(below, "the hook goes through it"))
            elif not self._edit(patch, rewrite.changes, "unsafe", copies.TITLE, rewrite.notes):
                rewrite = copies.steps(patch, "another edit changes the same lines")
        if not isinstance(rewrite, copies.ToProcessor):
            if rewrite:
                self.found.remarks.append(Remark(finding.path, finding.line, finding.rule, "by-hand", rewrite))
            return False
        reason = Reason(finding.rule, "unsafe", copies.TITLE, rewrite.notes, finding.line)
        self.repository.imports(finding.path).add(COMPAT, rewrite.names, reason)
        if self.options.unsafe_fixes:
            self.found.removes.append(finding)
            self.staying = others
        return True

    def _value_head(self, finding: Finding, patch: Patch | None) -> None:
        """Propose compat's value head, or say why not."""
        made: value_head.ToValueHead | str = "it is not a plain assignment"
        if below := self.staying.below(finding.path, standing.HOOK):
            made = standing.because(below, "the hook goes through it")
        elif patch is not None:
            limit = self.repository.imports(finding.path).limit
            made = value_head.to_value_head(patch, self._output_layers, limit)
            if not isinstance(made, str):
                if self._edit(patch, made.changes, "unsafe", value_head.TITLE, value_head.NOTES):
                    reason = Reason(finding.rule, "unsafe", value_head.TITLE, value_head.NOTES, finding.line)
                    self.repository.imports(finding.path).add(COMPAT, [value_head.ADD], reason)
                else:
                    made = "another edit changes the same lines"
        if isinstance(made, str):
            text = value_head.steps(made, self._output_layers)
        else:
            text = made.elsewhere if self.options.unsafe_fixes else ""
            self.found.removes += [finding] if self.options.unsafe_fixes else []
        if text:
            self.found.remarks.append(Remark(finding.path, finding.line, finding.rule, "by-hand", text))

    def _wrapper(self, patch: Patch) -> str:
        """Propose a hook of PyTorch, or say why not."""
        made = wrapper.to_hook(patch, self.repository, self.staying.findings, self._direct_calls)
        if isinstance(made, str):
            return made
        if not self._edit(patch, made.changes, "unsafe", wrapper.TITLE, made.notes):
            return "another edit changes the same lines"
        self.found.removes += [patch.finding] if self.options.unsafe_fixes else []
        return ""

    @cached_property
    def _direct_calls(self) -> list[wrapper.DirectCall]:
        return list(wrapper.find_direct_calls(self.repository))

    @cached_property
    def _output_layers(self) -> list[value_head.Place]:
        return list(value_head.find_places(self.repository))

    def _detach(self, patch: Patch) -> bool:
        change = detach.by_config(patch, self.options.target)
        if change is None:
            return False
        oldest = (self.options.pinned(patch.source.path) or (self.options.target,))[0]
        if oldest < detach.SINCE:  # which would take the field, and not read it
            text = (
                f"Not rewritten: `config.mtp_detach_heads` is read since megatron-core {show(detach.SINCE)}, and the "
                f"project allows {show(oldest)}. Raise that first."
            )
            remark = Remark(patch.source.path, patch.finding.line, patch.finding.rule, "by-hand", text)
            self.found.remarks.append(remark)
            return False
        # Where the patch is undone somewhere, that line would be left alone with nothing to undo.
        undone = any(related.role == "restore" for related in patch.finding.related) or self._is_set_elsewhere(patch)
        below = self.staying.below(patch.source.path, standing.MTP)
        if below is not None:
            text = f"Not rewritten: {standing.because(below, 'it may not read `config.mtp_detach_heads`')}."
            remark = Remark(patch.source.path, patch.finding.line, patch.finding.rule, "by-hand", text)
            self.found.remarks.append(remark)
        level: Applicability = "display" if undone or below is not None else "unsafe"
        made = self._edit(patch, [change], level, "`config.mtp_detach_heads` detaches", detach.NOTES)
        if made and level == "unsafe" and self.options.unsafe_fixes:
            self.found.removes.append(patch.finding)
        return made

    def _is_set_elsewhere(self, patch: Patch) -> bool:
        """Whether code that stays sets or deletes the method: it may put the original back."""
        name = patch.target.attr
        alike = [one for one in self.staying.findings if one.target == patch.finding.target]
        known = {(one.path, one.line) for one in alike if self._becomes_config(one)}
        for path in self.repository.paths:
            counts = path == patch.source.path or not is_test(path)
            source = self._source(path) if counts and name.encode() in self.repository.data(path) else None
            for node in ast.walk(source.tree) if source else ():
                if isinstance(node, ast.Attribute) and node.attr == name and not isinstance(node.ctx, ast.Load):
                    if (path, node.lineno) not in known:
                        return True
        return False

    def _becomes_config(self, finding: Finding) -> bool:
        source = self._source(finding.path)
        patch = find_patch(finding, source) if source else None
        return patch is not None and detach.by_config(patch, self.options.target) is not None

    def _gap(self, patch: Patch) -> None:
        changes = close_gap(patch, self.options.target)
        notes = ("a stop-gap: the patch stays, and the next release may break it again",)
        self._edit(patch, changes, "unsafe", f"fits the signature of {patch.target.attr}", notes)

    def _edit(
        self, patch: Patch, changes: list[Change], level: Applicability, title: str, notes: tuple[str, ...]
    ) -> bool:
        """Make edits of the changes, unless one of them touches what is taken already."""
        reason = Reason(patch.finding.rule, level, title, notes, patch.finding.line)
        asked = [Asked(patch.source, change, reason) for change in changes]
        spans = [one.touches for one in asked]
        taken = self.taken.setdefault(patch.source.path, [])
        if not changes or any(one.start < other.end and other.start < one.end for one in spans for other in taken):
            return False
        taken += spans
        self.found.asked += asked
        return True
