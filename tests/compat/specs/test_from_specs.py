"""What is said of Megatron's classes (`FROM_SPECS`), held to the sources of a release: who compares, builds or collects
one by its name."""

import ast
from pathlib import Path

import megatron.core
import pytest

from mcore_unpatch.megatron.layout import FROM_SPECS

CORE = Path(megatron.core.__file__ or "").parent
# Where a class is compared though it is listed, each behind a word of the list, or in a list for `isinstance`.
KNOWN = {
    ("TransformerLayer", "get_gpt_mtp_block_spec_for_backend"),
    ("TransformerLayer", "FullyShardedDataParallel.__init__"),
    ("TransformerLayer", "TorchFullyShardedDataParallel.__init__"),
    ("TransformerLayer", "RealQuantTransformerLayer.__init__"),  # for its signature
    ("DotProductAttention", "BertModel._sanity_check_attention_and_get_attn_mask_dimension"),
    ("TEDotProductAttention", "LLaVAModel.__init__"),
    ("TEDotProductAttention", "TEDotProductAttention.__init__"),  # a stream that it holds
    ("DotProductAttention", "_get_te_dot_product_attention"),  # that of Transformer Engine
    ("TopKRouter", "MoESubmodules"),  # the default of a field of specs
}
ASKED = ("isinstance", "issubclass", "super")


def uses(tree: ast.Module) -> set[tuple[str, str]]:
    """The classes of the list that a module uses in another way than specs and `isinstance` do, and where."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    renamed = {
        alias.asname: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    found = set()
    for node in ast.walk(tree):
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        name = renamed.get(name, name)
        if name not in FROM_SPECS or not isinstance(getattr(node, "ctx", None), ast.Load):
            continue
        above, below, around, fine, compared = parents.get(node), node, [], False, False
        while above is not None:
            around += [above.name] if isinstance(above, ast.FunctionDef | ast.ClassDef) else []
            called = ast.unparse(above.func) if isinstance(above, ast.Call) and below is not above.func else ""
            fine |= called in ASKED or called.endswith(("ModuleSpec", "Submodules"))
            fine |= below is getattr(above, "annotation", None) or below is getattr(above, "returns", None)
            fine |= isinstance(above, ast.ClassDef) and below in above.bases
            fine |= isinstance(above, ast.Attribute)  # a member of it
            compared |= isinstance(above, ast.Compare)
            above, below = parents.get(above), above
        makes = any("spec" in one.lower() or "submodules" in one.lower() for one in around)
        if compared or not (fine or makes):
            found.add((name, ".".join(reversed(around))))
    return found


@pytest.mark.slow
def test_megatron_has_these_classes_from_specs_alone() -> None:
    found = set().union(*(uses(ast.parse(path.read_text())) for path in CORE.rglob("*.py")))
    assert found <= KNOWN
