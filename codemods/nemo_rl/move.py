"""NeMo RL's move: the patch and its flag go together or not at all."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from mcore_unpatch.codemods.catalogue.nemo_rl import COMPAT, FLAG, KWARGS, NEMO_RL, RULE, flag_places
from mcore_unpatch.codemods.changes import Asked, Reason
from mcore_unpatch.codemods.nemo_rl.flag import STEPS, find_flags
from mcore_unpatch.codemods.shims.holds import Blocker
from mcore_unpatch.codemods.shims.move import Analysis, Move
from mcore_unpatch.codemods.shims.uses import Use
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Options, Remark, Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import Finding

_GUARD = "The shim supports context parallelism; delete this refusal once you have checked the labels with it"


class NemoRlMove(Move):
    """The move of NeMo RL's linear cross-entropy fusion."""

    contract = NEMO_RL

    def __init__(
        self, known: Analysis, bench: Workbench, options: Options, findings: Sequence[Finding], held: Collection[str]
    ) -> None:
        self.told: list[Remark] = []
        self.answered: set[tuple[str, int]] = set()  # lines whose flag goes
        if not options.wants(RULE):  # without the flag's edits, nothing would read the flag
            held = {*held, RULE}
        open_lines = {(finding.path, finding.line) for finding in findings if finding.rule == RULE}
        for path, source in known.exports.sources.items():
            for node in flag_places(source) if path in bench.editable and path not in known.exports.definitions else ():
                if options.wants(RULE) and (path, node.lineno) not in open_lines:
                    text = f"{path}:{node.lineno} uses `{FLAG}` and has an ignore comment"
                    known.holds.everywhere(RULE, Blocker(text, final=True))
        super().__init__(known, bench, options, findings, held)

    def _turn(self, source: Source) -> Use:
        use = super()._turn(source)
        level = self.level((COMPAT, RULE), *((path, RULE) for path in self.exports.definitions))
        if level and source.path in self.bench.editable and source.path not in self.exports.definitions:
            self._flags(use, Reason(RULE, level, "the hook arguments instead of the flag"))
        return use

    @classmethod
    def analyse(cls, repository: Repository) -> Analysis:
        """What a repository has of NeMo RL: a file with the flag that may not be edited holds all the others."""
        known = super().analyse(repository)
        for path, source in known.exports.sources.items():
            if path not in repository.editable and path not in known.exports.definitions:
                if lines := [node.lineno for node in flag_places(source)]:
                    text = f"{path}:{min(lines)} uses `{FLAG}` and {repository.not_editable(path)}"
                    known.holds.everywhere(RULE, Blocker(text, final=True))
        return known

    def _flags(self, use: Use, reason: Reason) -> None:
        source, flags = use.source, find_flags(use.source)
        self.told += [Remark(source.path, line, RULE, "by-hand", STEPS) for line in flags.left]
        if flags.changes:
            use.turned = True
            use.changes += [Asked(source, change, reason) for change in flags.changes]
            self.answered |= {(source.path, line) for line in flags.lines}
            at = [change.node for change in flags.changes if KWARGS in str(getattr(change, "text", ""))]
            self.bench.imports(source.path).add(COMPAT, [KWARGS], reason, at)

    def outcome(self) -> Contribution:
        """Edits and remarks, those on the flag included."""
        found = super().outcome()
        found.remarks += self.told
        found.removes += [one for one in self.findings if one.target == FLAG and (one.path, one.line) in self.answered]
        for use in self.uses:
            if use.turned:
                found.remarks += _guards(use.source)
        return found


def _guards(source: Source) -> Iterator[Remark]:
    """Assertions that refuse context parallelism together with the fusion."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            said = " ".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)).lower()
            if "context parallelism" in said and ("linear_ce_fusion" in said or "fused_linear_logprobs" in said):
                yield Remark(source.path, node.lineno, RULE, "guard", _GUARD)
