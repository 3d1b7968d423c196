"""An encoder detach that `config.mtp_detach_heads` does on megatron-core 0.19 and later."""

from __future__ import annotations

import ast
from dataclasses import replace

from mcore_unpatch.codemods import standing
from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, find_patch
from mcore_unpatch.codemods.syntax import is_value
from mcore_unpatch.megatron.versions import Version, show
from mcore_unpatch.paths import is_test

SINCE: Version = (0, 19)
NOTES = (
    "with more than one MTP layer, `mtp_detach_heads` cuts at the entry of the block, not at every depth",
    "`mtp_detach_heads` also detaches the output weight, and clips the MTP gradients in a group of their own",
)


def by_config(patch: Patch) -> Rewritten | str | None:
    """`layer._get_embeddings = detached` as `layer.config.mtp_detach_heads = True`."""
    options, path = patch.situation.options, patch.source.path
    if not _is_detach(patch):
        return None
    oldest = (options.pinned(path) or (options.target,))[0]
    if oldest < SINCE:  # which would take the field, and not read it
        since = f"`config.mtp_detach_heads` is read since megatron-core {show(SINCE)}"
        return f"{since}, and the project allows {show(oldest)}. Raise that first"
    only_shown = _undone(patch)
    if below := patch.situation.staying.below(path, standing.MTP):
        only_shown = standing.because(below, "it may not read `config.mtp_detach_heads`")
    change = Rewrite(patch.statement, f"{patch.text(patch.target.value)}.config.mtp_detach_heads = True")
    return Rewritten([change], notes=NOTES, only_shown=only_shown)


def _is_detach(patch: Patch) -> bool:
    new = patch.situation.options.target >= SINCE and patch.finding.shape == "instance-attr"
    return new and patch.target.attr == "_get_embeddings" and patch.function is not None and _detaches(patch.function)


def _detaches(function: ast.AST) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and node.attr in {"detach", "detach_"}:
            return True
        if isinstance(node, ast.keyword) and node.arg == "keep_graph":
            return is_value(node.value, False)
    return False


def _undone(patch: Patch) -> str:
    """Where code that stays sets or deletes the method, which may put the original back: nothing is left to undo."""
    situation, name = patch.situation, patch.target.attr
    for one in patch.finding.related:
        if one.role == "restore":
            return f"line {one.line} undoes it"
    alike = [one for one in situation.staying.findings if one.target == patch.finding.target]
    found = (find_patch(replace(situation, finding=one)) for one in alike)
    ours = {(one.source.path, one.statement.lineno) for one in found if one and _is_detach(one)}
    for source in situation.files.sources_saying(name):
        for node in source.every(ast.Attribute) if source is patch.source or not is_test(source.path) else ():
            if node.attr == name and not isinstance(node.ctx, ast.Load) and (source.path, node.lineno) not in ours:
                return f"{source.path}, line {node.lineno} may undo it"
    return ""
