"""An encoder detach that `config.mtp_detach_heads` does on megatron-core 0.19 and later."""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.megatron.versions import Version

SINCE: Version = (0, 19)
NOTES = (
    "with more than one MTP layer, `mtp_detach_heads` cuts at the entry of the block, not at every depth",
    "`mtp_detach_heads` also detaches the output weight, and clips the MTP gradients in a group of their own",
)


def by_config(patch: Patch, version: Version) -> Rewrite | None:
    """`layer._get_embeddings = detached` as `layer.config.mtp_detach_heads = True`."""
    if patch.target.attr != "_get_embeddings" or version < SINCE or patch.finding.shape != "instance-attr":
        return None
    if patch.function is None or not _detaches(patch.function):
        return None
    layer = patch.text(patch.target.value)
    return Rewrite(patch.statement, f"{layer}.config.mtp_detach_heads = True")


def _detaches(function: ast.AST) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr in {"detach", "detach_"}:
            return True
        if isinstance(node, ast.keyword) and node.arg == "keep_graph":
            return isinstance(node.value, ast.Constant) and node.value.value is False
    return False
