"""veRL's move, with what its callers should know: guards that are no longer needed, and what keeps their numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.codemods.catalogue.verl import FUSED, VERL
from mcore_unpatch.codemods.changes import AddArguments, Asked
from mcore_unpatch.codemods.shims.exports import ShimOrigin, Use
from mcore_unpatch.codemods.shims.move import Move
from mcore_unpatch.codemods.syntax import is_value, leaf
from mcore_unpatch.codemods.workbench import Contribution
from mcore_unpatch.editing.edits import Remark
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.scanner.sources.nodes import walk

_GUARD = (
    "This turns fused kernels off when MTP is on. You can delete it if you call "
    '`patch_fused_forward(model, numbers="megatron")`, which trains both together. '
    "Keep the conditions for value models and padded batches"
)
_REPEATED = "the shim raises for a model with `mtp_use_repeated_layer`: pass `every_depth=True` for such a model"
_DETACH, _GET_EMBEDDINGS = "patch_mtp_layer_get_embeddings", "_patched_get_embeddings_for_detach"


class VerlMove(Move):
    """The move of veRL and of forks of it."""

    contract = VERL

    def outcome(self) -> Contribution:
        """Edits and remarks, those for callers included."""
        contribution = super().outcome()
        for use in self.uses:
            if use.origins and use.path not in self.exports.definitions:
                contribution.asked += self._keep_every_depth(use)
                contribution.remarks += [
                    Remark(use.path, place.node.lineno, "MCU703", "by-hand", _REPEATED)
                    for place in use.moved
                    if place.origin.name == _DETACH and not _cuts_every_depth(place.origin)
                ]
                if any(origin.shim is FUSED for origin in use.origins.values()):
                    contribution.remarks += _guards(use.source)
        return contribution

    def _keep_every_depth(self, use: Use) -> Iterator[Asked]:
        """Calls of the encoder detach of veRL 0.7 say that they cut at every depth: later releases do not."""
        path = use.path
        cutting = {one.bound: one for one in use.asked if one.origin.name == _DETACH and _cuts_every_depth(one.origin)}
        source = use.source
        for node in walk(source.tree) if cutting and path in self.bench.editable else ():
            if isinstance(node, ast.Call) and node.args and (place := cutting.get(dotted(node.func))):
                if reason := self.why(path, place):
                    reason = replace(reason, title="keeps the cut at every depth")
                    yield Asked(source, AddArguments(node, ("every_depth=True",)), reason)


def _cuts_every_depth(origin: ShimOrigin) -> bool:
    """Whether this copy of the encoder detach cuts the hidden states at every depth, as veRL 0.7 does."""
    units = origin.definition.units if origin.definition else []
    node = next((unit.node for unit in units if unit.key == _GET_EMBEDDINGS), None)
    calls = (call for call in walk(node) if isinstance(call, ast.Call)) if node else ()
    return any(dotted(call.func) == "hidden_states.detach" for call in calls)


def _guards(source: Source) -> Iterator[Remark]:
    """`if ... mtp ...:` around `use_fused_kernels = False`."""
    for node in source.every(ast.If):
        if any("mtp" in leaf(part).lower() for part in walk(node.test)):
            off = [one for one in node.body if isinstance(one, ast.Assign) and is_value(one.value, False)]
            if any("fused" in dotted(target) for statement in off for target in statement.targets):
                yield Remark(source.path, node.lineno, "MCU701", "guard", _GUARD)
