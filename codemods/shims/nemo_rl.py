"""NeMo RL's move: the patch and its flag, which each call passes, go together or not at all.

`kwargs[flag] = True` becomes the hook's arguments where the function calls the model with `**kwargs`:
NeMo RL and its forks write it in this one way. Every other place is left, with the steps to take there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from mcore_unpatch.codemods.catalogue.nemo_rl import (
    COMPAT,
    FLAG,
    KWARGS,
    NEMO_RL,
    RULE,
    flag_places,
    found_flags,
    fusion_kwargs,
    says_flag,
)
from mcore_unpatch.codemods.changes import Asked, Change, Reason, Remove, Rewrite, below
from mcore_unpatch.codemods.shims.exports import Use
from mcore_unpatch.codemods.shims.move import Move
from mcore_unpatch.codemods.shims.sightings import Analysis, Blocker
from mcore_unpatch.codemods.syntax import is_stored, is_value, parameters
from mcore_unpatch.codemods.workbench import Contribution, Workbench
from mcore_unpatch.editing.edits import Options, Remark
from mcore_unpatch.editing.source import Source, Span, last_line
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.megatron.layout import HOOK_ARGUMENTS

_OF_THE_FLAG = re.compile(r"kwarg|flag|signature", re.IGNORECASE)
_GUARD = "The shim supports context parallelism; delete this refusal once you have checked the labels with it"
_ROUNDED = (
    "Log-probs are of logits in float32 now, and were of logits rounded to the model's dtype: in bfloat16 single "
    "values differ by up to some hundredths"
)
STEPS = (
    f"Nothing reads `{FLAG}` any more. Where it was true, pass the model `**{fusion_kwargs('model')}` from `{COMPAT}`, "
    f"with `labels` as before; where it was false, pass nothing; where it is read, ask for `{HOOK_ARGUMENTS[0]}`"
)


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
        # A file with the flag that stays holds all the others.
        for path, places in found_flags(known.exports):
            for line in sorted(node.lineno for node in places):
                if path not in bench.editable:
                    why = bench.not_editable(path)
                elif options.wants(RULE) and (path, line) not in open_lines:
                    why = "has an ignore comment"
                else:
                    continue
                known.holds.everywhere(RULE, Blocker(f"{path}:{line} uses `{FLAG}` and {why}", final=True))
                break
        super().__init__(known, bench, options, findings, held)

    def _turn(self, path: str) -> Use:
        use = super()._turn(path)
        level = self.level((COMPAT, RULE), *((definition, RULE) for definition in self.exports.definitions))
        if level and path in self.bench.editable and says_flag(self.exports, path):
            self._flags(use, Reason(RULE, level, "the hook arguments instead of the flag"))
        return use

    def _flags(self, use: Use, reason: Reason) -> None:
        source, flags = use.source, list(_flagged(use.source))
        self.told += [Remark(source.path, line, RULE, "by-hand", STEPS) for line, changes in flags if not changes]
        if made := [change for _, changes in flags for change in changes]:
            use.turned = True
            use.changes += [Asked(source, change, reason) for change in made]
            self.answered |= {(source.path, line) for line, changes in flags if changes}
            at = [change.node for change in made if KWARGS in str(getattr(change, "text", ""))]
            self.bench.imports(source.path).add(COMPAT, [KWARGS], reason, at)

    def outcome(self) -> Contribution:
        """Edits and remarks, those on the flag included."""
        found = super().outcome()
        found.remarks += self.told
        found.removes += [one for one in self.findings if one.target == FLAG and (one.path, one.line) in self.answered]
        for use in self.uses:
            if use.turned:
                found.remarks += _guards(use.source)
        found.remarks += [Remark(*place, RULE, "numerics", _ROUNDED) for place in sorted(self.answered)[:1]]
        return found


def _guards(source: Source) -> Iterator[Remark]:
    """Assertions that refuse context parallelism together with the fusion."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            said = " ".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)).lower()
            if "context parallelism" in said and ("linear_ce_fusion" in said or "fused_linear_logprobs" in said):
                yield Remark(source.path, node.lineno, RULE, "guard", _GUARD)


def _flagged(source: Source) -> Iterator[tuple[int, list[Change]]]:
    """Every line of a file that has to do with the flag, and what becomes of it: nothing where it stays."""
    for node in flag_places(source):
        changes: list[Change] = []
        match source.parents[node], source.parents.get(source.parents[node]):
            case ast.Subscript(value=mapping) as target, ast.Assign(targets=[only], value=value) as statement if (
                only is target and is_value(value, True) and (model := _model_of(mapping, statement, source))
            ):
                new = f"{source.text(mapping)}.update({fusion_kwargs(model)})"
                first = source.first_with_comments(statement)
                said = " ".join(map(source.line, range(first, statement.lineno)))
                if _OF_THE_FLAG.search(said):  # the comment goes with it
                    last = last_line(statement)
                    behind = source.text_of(Span(source.span(statement).end, source.line_span(last, last).end)).rstrip()
                    changes = [Remove(statement, first, last), below(statement, new + behind)]
                else:
                    changes = [Rewrite(statement, new)]
        yield node.lineno, changes


def _model_of(mapping: ast.expr, statement: ast.stmt, source: Source) -> str:
    """The model that is called with `**mapping` in the same function, known before the statement; empty if unclear."""
    function, name = source.function_of(statement), source.text(mapping)
    if function is None:
        return ""
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    unpacking = [
        call for call in calls if any(one.arg is None and source.text(one.value) == name for one in call.keywords)
    ]
    models = {_called_or_passed(call) for call in unpacking}
    text = models.pop() if len(models) == 1 else ""
    root = text.partition(".")[0]
    before = [node for node in ast.walk(function) if is_stored(node, root) and node.lineno < statement.lineno]  # type: ignore[attr-defined]
    return text if root and (root in parameters(function) or before) else ""


def _called_or_passed(call: ast.Call) -> str:
    """`model(...)`, or the argument of `forward_step(model, ...)` that is called a model."""
    named = [keyword.value for keyword in call.keywords if keyword.arg == "model"]
    named += [argument for argument in call.args if dotted(argument).endswith("model")]
    callee = dotted(call.func)
    return callee if "model" in callee.rpartition(".")[2] or not named else dotted(named[0])
