"""veRL's move, with what its callers should know: guards that are no longer needed, numbers that may change."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from mcore_unpatch.codemods.edits import Options, Remark
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.shims.contract import Shim
from mcore_unpatch.codemods.shims.migrate import Migration
from mcore_unpatch.codemods.shims.reaches import dotted
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.verl.contract import FUSED, VERL
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import Finding

_HEAD = (
    "MuP's output scaling is applied now, which the patch left out. With tensor and without sequence parallelism the "
    "gradient of the hidden states is summed over the ranks now, which veRL's kernel leaves out. The weight of the "
    "output layer is read, not its forward: what a patched or fp32 `output_layer.forward` does is no part of it, as "
    "before, and a layer that is no plain column-parallel one (LoRA, an adapter) is refused"
)
# Name -> what is not numerically neutral where it is called.
_NUMERICS = {
    "fused_output_processor": _HEAD,
    "patch_fused_forward": _HEAD,
    "gptmodel_forward_1f1b_overlap": _HEAD,
    "patch_postprocess": (
        "Megatron computes the MTP loss, and it updates the LM head, as it did on megatron-core 0.17+; "
        "`mtp_updates_lm_head=False` keeps it out. On 0.19+ a call with `labels=None` would derive labels from the "
        "input ids and add an MTP loss: the shim prevents that for the models it is given, and for no others"
    ),
    "patch_mtp_layer_get_embeddings": (
        "the cut is at every depth, as before. With one MTP layer and `mtp_updates_lm_head=False` on megatron-core "
        "0.19+ it is `config.mtp_detach_heads`, which clips the MTP gradients in a group of their own; with more "
        "layers the field would cut before the first depth only, and is not used unless asked for"
    ),
}
_GUARD = (
    "this turns fused kernels off when MTP is on. The shims run both together, so the guard can go; conditions for "
    "value models or padded batches in the same test are another matter"
)
_STRING = "this text names a file whose callers import the shim now: a mock of it no longer reaches them"


class Verl(Migration):
    """The move of veRL and of forks of it."""

    def __init__(self, bench: Workbench, options: Options) -> None:
        super().__init__(VERL, bench, options)

    def outcome(self, findings: Sequence[Finding]) -> Outcome:
        """Edits and remarks, those for callers included."""
        found = super().outcome(findings)
        told = {remark.path for remark in found.remarks if remark.kind == "by-hand"}
        moved = {origin.shim.file: origin.shim for use in self.uses if use.turned for origin in use.origins.values()}
        for path, definition in self.exports.definitions.items():
            if any(self.level((path, definition.shim.names[name])) for name in definition.defined):
                moved[definition.shim.file] = definition.shim
        for use in self.uses:
            path = use.source.path
            if use.origins and path not in self.exports.definitions:
                names = {bound: origin.name for bound, origin in use.origins.items() if origin.name}
                found.remarks += _numerics(use.source, names, use.turned)
                if any(origin.shim is FUSED for origin in use.origins.values()):
                    found.remarks += _guards(use.source)
            # A test that replaces something there is told of it already.
            if path not in self.exports.definitions and path not in told:
                found.remarks += _strings(use.source, moved)
        return found


def _numerics(source: Source, names: dict[str, str], changed: bool) -> Iterator[Remark]:
    """One remark per call or handing on of a function whose results may change, while the file is being turned."""
    for node in ast.walk(source.tree) if changed else ():
        if isinstance(node, ast.Call | ast.Assign | ast.keyword):
            called = node.func if isinstance(node, ast.Call) else node.value
            name = names.get(dotted(called), "")
            if name in _NUMERICS:
                rule = next(shim.names[name] for shim in VERL.shims if name in shim.names)
                yield Remark(source.path, called.lineno, rule, "numerics", f"`{name}`: {_NUMERICS[name]}")


def _guards(source: Source) -> Iterator[Remark]:
    """`if ... mtp ...:` around `use_fused_kernels = False`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.If) and any("mtp" in name.lower() for name in _names(node.test)):
            off = (
                statement
                for statement in node.body
                if isinstance(statement, ast.Assign)
                and isinstance(statement.value, ast.Constant)
                and statement.value.value is False
                and any("fused" in dotted(target) for target in statement.targets)
            )
            if next(off, None) is not None:
                yield Remark(source.path, node.lineno, "MCU101", "guard", _GUARD)


def _names(node: ast.expr) -> Iterator[str]:
    for child in ast.walk(node):
        if isinstance(child, ast.Name):
            yield child.id
        elif isinstance(child, ast.Attribute):
            yield child.attr


def _strings(source: Source, moved: Mapping[str, Shim]) -> Iterator[Remark]:
    """Dotted names of the files that moved, in strings: mocks, lazy imports."""
    modules = {file.removesuffix(".py").replace("/", "."): shim for file, shim in moved.items()}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " not in node.value:
            for module, shim in modules.items():
                if node.value.endswith(module) or f"{module}." in node.value:
                    yield Remark(source.path, node.lineno, min(shim.names.values()), "by-hand", _STRING)
