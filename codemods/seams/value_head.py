"""`model.output_layer = Linear(hidden, 1)`: compat's value head takes the same layer, at the hook.

Values, gradients and Megatron's checkpoints stay; the layer is then `model.value_head.output_layer`. Code of the
repository that speaks of critics reads it there, and all other places that name the layer are listed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, Replace, Rewrite
from mcore_unpatch.codemods.codemod import AddImport, Elsewhere
from mcore_unpatch.codemods.seams.patch import COMPAT, Patch, Rewritten, is_taken
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source

ADD, READ, LAYER, NOW = "add_value_head", "output_layer_of", "output_layer", "value_head.output_layer"
_HEAD = "value_head"
NOTES = (
    f"the layer and its parameters are `model.{NOW}` now; in Megatron's checkpoints they stay `{LAYER}.*`",
    "`add_value_head` raises for a model with MTP layers, with embeddings tied over pipeline stages, or already in DDP",
    "a critic that is called with labels raises, where it returned zeros",
)
_WIDTHS = ("output_size", "out_features")
_NAMED = re.compile(rf"(^|\.){LAYER}(\.|$)")
_CRITIC = re.compile(r"critic|(?<!key_)value_?(head|model)|LinearForLastLayer", re.IGNORECASE)
_BRIDGES = re.compile(rb"^[ \t]*(?:from|import)[ \t]+(?:megatron\.bridge|mbridge)\b", re.MULTILINE)
_SHOWN = 8


@dataclass(frozen=True)
class OutputLayerRead:
    """A line that reads a model's output layer, or names its parameters."""

    path: str
    line: int
    of_a_critic: bool  # the function around it speaks of critics
    read: Elsewhere | None = None  # what finds it in a critic and in any other model

    def __str__(self) -> str:
        return f"{self.path}:{self.line}"


def to_value_head(patch: Patch) -> Rewritten | str:
    """The rewrite, or why this is not exactly a value head."""
    source, statement, files = patch.source, patch.statement, patch.situation.files
    for one in patch.finding.related:
        if one.role in {"restore", "backup"}:
            return f"line {one.line} saves or restores the model's own layer"
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
    bridged = source.path if _is_for_a_bridge(patch, made) else patch.situation.once(find_bridge)
    if bridged:
        return (
            f"{bridged} makes or saves models with a bridge, which knows parameters by name and would neither load nor "
            "export those of a value head. Do it by hand where critics are saved by Megatron alone"
        )
    if not _can_be_indented(patch):
        return f"line {statement.lineno} has a comment or a string that would move"
    later = list(_later_reads(patch))
    moved = {node.lineno for node in later}
    known: list[OutputLayerRead] = patch.situation.once(find_places)
    places = [one for one in known if one.path != source.path or one.line not in moved]
    critics = [one for one in places if one.of_a_critic]
    if stays := [one for one in critics if one.read is None or one.path not in files.editable]:
        return f"{stays[0]} uses the output layer of a critic"
    changes: list[Change] = [Rewrite(statement, _call(patch, made, files.imports(source.path).limit))]
    changes += [Replace(node, f"{patch.text(node.value)}.{NOW}") for node in later]
    reads = [one.read for one in critics if one.read]
    listed = [one for one in places if not one.of_a_critic]
    return Rewritten(changes, [ADD], NOTES, _elsewhere(listed), reads)


def steps(because: str, known: Sequence[OutputLayerRead]) -> str:
    """What to do by hand in the place of the assignment, and elsewhere."""
    places = sorted(known, key=lambda one: not one.of_a_critic)
    read = f"\n2. {_elsewhere(places)}" if places else ""
    return (
        f"Not rewritten: {because}.\n"
        f"1. If the layer gives values and no logits, write `{ADD}(model, layer)` here, from `mcore_unpatch.compat`, "
        "before the model is wrapped for data parallelism. The layer is called with `weight=` and "
        "`runtime_gather_output=` and returns `(values, None)`; without one, the head is a product without bias whose "
        f"values are fp32.{read}"
    )


def find_places(files: Workbench) -> list[OutputLayerRead]:
    """Where the repository, its tests left out, reads `x.output_layer` or names it in a text."""
    return [place for source in files.sources_saying(LAYER, tests=False) for place in _places(source)]


def find_bridge(files: Workbench) -> str:
    """The first file of the repository that gives models to Megatron-Bridge or mbridge."""
    return next((one.path for one in files.sources_saying(_BRIDGES, tests=False) if b"AutoBridge" in one.data), "")


def _places(source: Source) -> Iterator[OutputLayerRead]:
    for node in source.every(ast.Attribute):
        own = isinstance(node.value, ast.Name) and node.value.id == "self"
        if node.attr == LAYER and isinstance(node.ctx, ast.Load) and not own and _HEAD not in source.text(node.value):
            yield OutputLayerRead(
                source.path, node.lineno, _speaks_of_critics(source, node), _read(source, node, [node.value])
            )
    for text in source.every(ast.Constant):
        above = source.parents.get(text)
        if not isinstance(text.value, str) or not _NAMED.search(text.value) or " " in text.value:
            continue
        if isinstance(above, ast.Call) and _leaf(above.func) == "hasattr":  # the model still has one
            continue
        if isinstance(above, ast.Call) and _leaf(above.func) == "getattr" and text in above.args[1:2]:
            model, _, *default = above.args
            if _HEAD not in source.text(model):
                read = _read(source, above, [model, *default])
                yield OutputLayerRead(source.path, text.lineno, _speaks_of_critics(source, text), read)
        elif not _is_in_both_names(source, text):
            yield OutputLayerRead(source.path, text.lineno, _speaks_of_critics(source, text))


def _read(source: Source, node: ast.expr, given: Sequence[ast.expr]) -> Elsewhere | None:
    """The layer of any model: `output_layer_of(model)` is that of a critic's head, or the model's own."""
    if is_taken(READ, source):
        return None
    change = Replace(node, f"{READ}({', '.join(map(source.text, given))})")
    return Elsewhere(source, change, AddImport(COMPAT, READ))


def _is_in_both_names(source: Source, text: ast.Constant) -> bool:
    """`"output_layer" in name`, `name.endswith("output_layer.weight")`; and Megatron's checkpoints keep the name."""
    above = source.parents.get(text)
    if isinstance(above, ast.Compare):
        return above.left is text and all(isinstance(one, ast.In | ast.NotIn) for one in above.ops)
    if isinstance(above, ast.Call) and _leaf(above.func) == "endswith":
        return True
    function = source.function_of(text)
    said = source.text(function) if function is not None else ""
    return "dist_checkpointing" in said and not any(one in said for one in ("named_parameters", "state_dict"))


def _speaks_of_critics(source: Source, node: ast.AST) -> bool:
    """Whether the outermost function around a node has a word for a value head."""
    function: Function | None = None
    above: ast.AST | None = node
    while above is not None:
        function = above if isinstance(above, Function) else function
        above = source.parents.get(above)
    return function is not None and bool(_CRITIC.search(source.text(function)))


def _elsewhere(places: Sequence[OutputLayerRead]) -> str:
    if not places:
        return ""
    shown = ", ".join(map(str, places[:_SHOWN]))
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f"These lines read or name `{LAYER}`; for a critic it is `{NOW}`: {shown}{more}."


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
    taken = [one.arg for one in (*init.args.posonlyargs, *init.args.args)][1:] if init else ["", _WIDTHS[0]]
    if any(isinstance(one, ast.Starred) for one in call.args):
        return None
    given = dict(zip(taken, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}
    if init is not None:
        only, defaults = init.args.kwonlyargs, init.args.kw_defaults
        given = {one.arg: value for one, value in zip(only, defaults, strict=True) if value} | given
        given = dict(zip(reversed(taken), reversed(init.args.defaults), strict=False)) | given
    if width := next((given[name] for name in _WIDTHS if name in given), None):
        return width
    calls = [node for node in ast.walk(init) if isinstance(node, ast.Call)] if init else []
    supers = [node for node in calls if ast.unparse(node.func) == "super().__init__"]
    return _width(supers[0], ast.Module([], [])) if len(supers) == 1 else None


def _init_of(name: ast.expr, tree: ast.Module) -> ast.FunctionDef | None:
    """`__init__` of a class of this file."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == _leaf(name)]
    functions = [node for one in classes for node in one.body if isinstance(node, ast.FunctionDef)]
    return next((node for node in functions if node.name == "__init__"), None)


def _is_for_a_bridge(patch: Patch, made: ast.Call) -> bool:
    """Whether the file is part of a bridge between checkpoints, or tells one how to convert the class of the layer."""
    told = {one.value for call in patch.source.every(ast.Call) for one in call.args if isinstance(one, ast.Constant)}
    return "bridge" in patch.source.path.lower() or _leaf(made.func) in told


def _is_one(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1 and not isinstance(node.value, bool)


def _can_be_indented(patch: Patch) -> bool:
    """Whether nothing but code stands around the value, and no text runs over lines."""
    whole, value = patch.source.span(patch.statement), patch.source.span(patch.statement.value)
    around = patch.source.data[whole.start : value.start] + patch.source.data[value.end : whole.end]
    texts = (node for node in ast.walk(patch.statement) if isinstance(node, ast.Constant | ast.JoinedStr))
    return b"#" not in around and all(node.lineno == node.end_lineno for node in texts)


def _later_reads(patch: Patch) -> Iterator[ast.Attribute]:
    """Reads of the same layer behind the statement and in its suite: they mean the value head."""
    suite = patch.source.home[id(patch.statement)]
    name = ast.unparse(patch.target)
    for statement in suite[suite.index(patch.statement) + 1 :]:
        for node in ast.walk(statement):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr == LAYER:
                if ast.unparse(node) == name:
                    yield node


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
        parts = [source.text(one) for one in arguments]
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
