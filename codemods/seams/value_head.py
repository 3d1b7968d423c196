"""`model.output_layer = Linear(hidden, 1)`: compat's value head takes the same layer, under the same name.

Values, gradients, parameters and checkpoints stay; what a critic cannot do is refused from then on.
"""

from __future__ import annotations

import ast

from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, is_taken

ADD = "add_value_head"
NOTES = (
    f"`{ADD}` raises for a model with MTP layers, with embeddings tied over pipeline stages, or already in DDP",
    "a critic that is called with labels raises, where it returned zeros",
)
_WIDTHS = ("output_size", "out_features")


def to_value_head(patch: Patch) -> Rewritten | str:
    """The rewrite, or why this is not exactly a value head."""
    source, statement = patch.source, patch.statement
    for related in patch.finding.related:
        if related.role in {"restore", "backup"}:
            return f"line {related.line} saves or restores the model's own layer"
    if not source.owns_lines(statement):
        return f"line {statement.lineno} holds more than one statement"
    if is_taken(ADD, source):
        return f"the name `{ADD}` is taken"
    made = _made(patch)
    if made is None:
        return f"`{patch.text(statement.value)}` is not created here"
    if _leaf(made.func) == "Linear":
        return f"`{patch.text(made.func)}` does not accept `weight=`, which Megatron passes to an output layer"
    if not _is_one(_width(made, source.tree)):
        return f"`{patch.text(made.func)}(...)` is not known to return one value per token"
    if not _can_be_indented(patch):
        return f"line {statement.lineno} has a comment or a string that would move"
    limit = patch.situation.files.imports(source.path).limit
    return Rewritten([Rewrite(statement, _call(patch, made, limit))], [ADD], NOTES)


def steps(because: str) -> str:
    """What to do by hand in the place of the assignment."""
    return (
        f"Not rewritten: {because}.\n"
        f"1. If the layer gives values and no logits, write `{ADD}(model, layer)` here, from `mcore_unpatch.compat`, "
        "before the model is wrapped for data parallelism. The layer is called with `weight=` and "
        "`runtime_gather_output=` and returns `(values, None)`; without one, the head is a product without bias whose "
        "values are fp32."
    )


def _leaf(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _made(patch: Patch) -> ast.Call | None:
    """The call that makes the layer: the value, or that of a local name, without `.to(...)` and the like."""
    value: ast.expr | None = patch.statement.value
    if isinstance(value, ast.Name) and patch.around is not None:
        stored = [node for node in ast.walk(patch.around) if isinstance(node, ast.Name) and node.id == value.id]
        assigned = [node for node in ast.walk(patch.around) if isinstance(node, ast.Assign)]
        values = [node.value for node in assigned if _leaf(node.targets[0]) == value.id]
        once = sum(isinstance(node.ctx, ast.Store) for node in stored) == 1
        value = values[0] if once and len(values) == 1 else None
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call)
    ):
        value = value.func.value
    return value if isinstance(value, ast.Call) else None


def _width(call: ast.Call, tree: ast.Module) -> ast.expr | None:
    """What a call gives as the width of the output, or what its class in this file does by itself."""
    init = _init_of(call.func, tree)
    taken = [parameter.arg for parameter in (*init.args.posonlyargs, *init.args.args)][1:] if init else ["", _WIDTHS[0]]
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    given = dict(zip(taken, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
    if init is not None:
        only, defaults = init.args.kwonlyargs, init.args.kw_defaults
        given = {parameter.arg: value for parameter, value in zip(only, defaults, strict=True) if value} | given
        given = dict(zip(reversed(taken), reversed(init.args.defaults), strict=False)) | given
    if width := next((given[name] for name in _WIDTHS if name in given), None):
        return width
    calls = [node for node in ast.walk(init) if isinstance(node, ast.Call)] if init else []
    supers = [node for node in calls if ast.unparse(node.func) == "super().__init__"]
    return _width(supers[0], ast.Module([], [])) if len(supers) == 1 else None


def _init_of(name: ast.expr, tree: ast.Module) -> ast.FunctionDef | None:
    """`__init__` of a class of this file."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == _leaf(name)]
    functions = [node for class_node in classes for node in class_node.body if isinstance(node, ast.FunctionDef)]
    return next((node for node in functions if node.name == "__init__"), None)


def _is_one(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1 and not isinstance(node.value, bool)


def _can_be_indented(patch: Patch) -> bool:
    """Whether nothing but code stands around the value, and no text runs over lines."""
    whole, value = patch.source.span(patch.statement), patch.source.span(patch.statement.value)
    around = patch.source.data[whole.start : value.start] + patch.source.data[value.end : whole.end]
    texts = (node for node in ast.walk(patch.statement) if isinstance(node, ast.Constant | ast.JoinedStr))
    return b"#" not in around and all(node.lineno == node.end_lineno for node in texts)


def _call(patch: Patch, made: ast.Call, limit: int) -> str:
    """Laid out as formatters do: as few lines as fit; a layer with a comment or a last comma keeps its lines."""
    source, statement = patch.source, patch.statement
    model, value, indent = patch.text(patch.target.value), patch.text(statement.value), source.indentation(statement)
    step = "\t" if indent.startswith("\t") else "    "
    first, *rest = value.splitlines()
    lines = [first, *(line.removeprefix(indent) for line in rest)]
    flat = value if not rest else ""
    if made is statement.value and "#" not in value:
        given: list[ast.expr | ast.keyword] = [*made.args, *made.keywords]
        arguments = sorted(given, key=lambda one: (one.lineno, one.col_offset))
        parts = [source.text(argument) for argument in arguments]
        if not value[:-1].rstrip().endswith(","):
            flat = f"{patch.text(made.func)}({', '.join(parts)})"
            lines = [f"{patch.text(made.func)}(", *(f"{step}{part}," for part in parts), ")"]
    laid_out = [f"{ADD}(", f"{step}{model},", *(f"{step}{line}" for line in lines[:-1]), f"{step}{lines[-1]},", ")"]
    joined = [f"{ADD}(", f"{step}{model}, {flat}", ")"]
    apart = [f"{ADD}(", f"{step}{model},", f"{step}{flat},", ")"]
    for found in ([f"{ADD}({model}, {flat})"], joined, apart) if flat and "\n" not in flat else ():
        if len(indent) + max(map(len, found)) <= limit:
            return "\n".join(found)
    return "\n".join(laid_out)
