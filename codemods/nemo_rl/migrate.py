"""NeMo RL's move: the patch and its flag go together or not at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.edits import Options, Remark, Repository
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.nemo_rl.contract import COMPAT, KWARGS, NEMO_RL, RULE
from mcore_unpatch.codemods.nemo_rl.flag import flags
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.shims.migrate import Migration
from mcore_unpatch.codemods.shims.uses import Use, turn
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.findings import Finding

_NUMERICS = (
    "MuP's output scaling is applied now, and the MTP loss is computed, which the patch both left out. The weight of "
    "the output layer is read, not its forward: what a patched or fp32 `output_layer.forward` does is no part of "
    "it, as before, and a layer that is no plain column-parallel one (LoRA, an adapter) is refused"
)
_GUARD = "the shim works with context parallelism: this refusal can go once the labels are checked under it"


class NemoRl(Migration):
    """The move of NeMo RL's linear cross-entropy fusion."""

    def __init__(self, repository: Repository, options: Options) -> None:
        self.told: list[Remark] = []
        super().__init__(NEMO_RL, repository, options)

    def _turn(self, source: Source) -> Use:
        return turn(source, self.exports, self.may, self._flags)

    @property
    def _patch_goes(self) -> bool:
        return self.options.wants(RULE) and (self.options.unsafe_fixes or not self.changed)

    def _flags(self, source: Source, editor: ImportEditor) -> list[Change]:
        changes: list[Change] = []
        for flag in flags(source) if self._patch_goes else ():
            if flag.change is None:
                self.told.append(Remark(source.path, flag.line, RULE, "by-hand", flag.reason))
            else:
                self.told.append(Remark(source.path, flag.line, RULE, "numerics", _NUMERICS))
                changes.append(flag.change)
        if changes:
            editor.add(COMPAT, [KWARGS])
        return changes

    def outcome(self, findings: Sequence[Finding]) -> Outcome:
        """Edits and remarks, those on the flag included."""
        found = super().outcome(findings)
        found.remarks += self.told
        for use in self.uses:
            if use.changes:
                found.remarks += _guards(use.source)
        return found


def _guards(source: Source) -> Iterator[Remark]:
    """Assertions that refuse context parallelism together with the fusion."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            said = " ".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)).lower()
            if "context parallelism" in said and ("linear_ce_fusion" in said or "fused_linear_logprobs" in said):
                yield Remark(source.path, node.lineno, RULE, "guard", _GUARD)
