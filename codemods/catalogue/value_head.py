"""Value heads: the output layer of a built model replaced by a linear layer of width one.

Values, gradients, parameters and checkpoints stay; what a critic cannot do is refused from then on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.codemod import COMPAT, AddImport, Codemod, Example, Fix, Left, Match, Note
from mcore_unpatch.codemods.seams.patch import Patch, defined, find_patch, is_taken
from mcore_unpatch.codemods.syntax import is_stored, leaf, parameters
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.syntax import dotted

_ADD = "add_value_head"
_NOTES = (
    f"`{_ADD}` raises for a model with MTP layers, with embeddings tied over pipeline stages, or already in DDP",
    f"`{_ADD}` raises with `defer_embedding_wgrad_compute`",
    "a critic that is called with labels raises, where it returned zeros",
    "a model that holds the language model gets the head there: in checkpoints it is `language_model.output_layer`",
)
_WIDTHS = ("output_size", "out_features")


class ValueHeads(Codemod):
    """The layer is given to compat, which holds it under the same name."""

    name, title = "value-heads", "Value heads"
    answers = ("MCU501",)
    does = "the value head is added by compat, under the same name"
    examples = (
        Example(
            "MCU501",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer


def model_provider(config, role, post_process=True, **kwargs):
    model = GPTModel(config, post_process=post_process, **kwargs)
    if post_process and role == "critic":
        model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)
        model.output_layer.reset_parameters()
    return model
""",
            after="""
from mcore_unpatch.compat import add_value_head
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer


def model_provider(config, role, post_process=True, **kwargs):
    model = GPTModel(config, post_process=post_process, **kwargs)
    if post_process and role == "critic":
        add_value_head(model, LinearForLastLayer(config.hidden_size, 1, config=config))
        model.output_layer.reset_parameters()
    return model
""",
            unsafe=True,
        ),
        Example(
            "MCU501",
            before="""
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


def critic(model: GPTModel, config):
    # Megatron calls its output layer with `weight=`, which this one does not take.
    model.output_layer = torch.nn.Linear(config.hidden_size, 1)
""",
            unsafe=True,
        ),
        Example(
            "MCU501",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer, unwrapped


def to_critic(model: GPTModel, config):
    model.output_layer = LinearForLastLayer(config.hidden_size, 1, config=config)


def critics(models, config):
    # These are in DDP already, where a new layer is left out of its buffers.
    for model in models:
        inner = unwrapped(model)
        to_critic(inner, config)
""",
            unsafe=True,
        ),
    )
    covers = """
`model.output_layer = Layer(hidden, 1)` on a built model, as veRL, slime, miles, AReaL and RLinf make their critics
"""
    changes = """
The assignment becomes `add_value_head(model, Layer(hidden, 1))`. The layer is `model.output_layer` as before: values,
gradients, names of parameters and checkpoints are the same ([value heads](../compat-value-head.md)). The conditions
around it stay.
"""
    applied = """
With `--unsafe-fixes`, because what a critic cannot do raises from then on. Where it is not exactly this, the table has
the steps:

- the layer does not say a width of one (`output_size=1`, `out_features=1`, or the second argument of a class of
  another file), is a plain `torch.nn.Linear`, or is made somewhere else;
- the model's own layer is kept or put back, or the layer is set with `setattr`;
- the model comes out of a wrapper (`unwrap_model`): a head that is added after DDP is refused when it runs. A function
  of the file that gives `model.language_model` takes it out of none.
"""
    by_hand = """
- **MTP layers** are refused in a critic, and so are embeddings that are tied over several pipeline stages and
  `defer_embedding_wgrad_compute`.
- **Labels.** A critic that is called with labels raises, where it returned zeros.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """Compat's value head around the same layer; what its state goes through has no other place."""
        if match.target.endswith(".output_layer"):
            patch = find_patch(match.situation)
            made = _to_value_head(patch) if patch else "it is not a plain assignment"
            yield from [Left(made)] if isinstance(made, str) else made


def _to_value_head(patch: Patch) -> list[Fix] | str:
    """The rewrite, or why this is not exactly a value head."""
    source, statement = patch.source, patch.statement
    for related in patch.finding.related:
        if related.role in {"restore", "backup"}:
            return f"line {related.line} saves or restores the model's own layer"
    if not source.owns_lines(statement):
        return f"line {statement.lineno} holds more than one statement"
    if is_taken(_ADD, source):
        return f"the name `{_ADD}` is taken"
    made = _made(patch)
    if made is None:
        return f"`{patch.text(statement.value)}` is not created here"
    if leaf(made.func) == "Linear":
        return f"`{patch.text(made.func)}` does not accept `weight=`, which Megatron passes to an output layer"
    width = _width(made, source.tree)
    if not isinstance(width, ast.Constant) or width.value != 1 or width.value is True:
        return f"`{patch.text(made.func)}(...)` is not known to return one value per token"
    if line := _unwrapped_on(patch):
        return (
            f"line {line} takes the model out of its wrapper; after DDP a head is in no gradient buffer and not reduced"
        )
    if not _can_be_indented(patch):
        return f"line {statement.lineno} has a comment or a string that would move"
    limit = source.width
    return [Rewrite(statement, _call(patch, made, limit)), AddImport(COMPAT, _ADD), *map(Note, _NOTES)]


def _made(patch: Patch) -> ast.Call | None:
    """The call that makes the layer: the value, or that of a local name, without `.to(...)` and the like."""
    value: ast.expr | None = patch.statement.value
    if isinstance(value, ast.Name) and patch.around is not None:
        stored = [node for node in ast.walk(patch.around) if isinstance(node, ast.Name) and node.id == value.id]
        assigned = [node for node in ast.walk(patch.around) if isinstance(node, ast.Assign)]
        values = [node.value for node in assigned if leaf(node.targets[0]) == value.id]
        once = sum(isinstance(node.ctx, ast.Store) for node in stored) == 1
        value = values[0] if once and len(values) == 1 else None
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call)
    ):
        value = value.func.value
    return value if isinstance(value, ast.Call) else None


def _unwrapped_on(patch: Patch) -> int:
    """The line on which the model, here or at a call of the function around, comes out of a wrapper; 0 for none."""
    tree, model = patch.source.tree, patch.text(patch.target.value)
    models = {model}
    if patch.around is not None and model in {parameter.arg for parameter in patch.around.args.args}:
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and leaf(node.func) == patch.around.name)
        models |= {patch.source.text(argument) for call in calls for argument in call.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and "unwrap" in leaf(node.value.func):
            if patch.source.text(node.targets[0]) in models and not _gives_a_part(tree, leaf(node.value.func)):
                return node.lineno
    return 0


def _gives_a_part(tree: ast.Module, name: str) -> bool:
    """Whether a function of the file only gives back what it is given, or a model that this holds: no wrapper's."""
    function = defined(tree, name, None)
    given = parameters(function)[:1] if function is not None else []
    if function is None or not given or any(is_stored(node, given[0]) for node in ast.walk(function)):
        return False
    returned = [dotted(node.value) for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
    return bool(returned) and {*returned} <= {given[0], f"{given[0]}.language_model"}


def _width(call: ast.Call, tree: ast.Module) -> ast.expr | None:
    """What a call gives as the width of the output; the second argument of a class of this file may be another."""
    own = any(isinstance(node, ast.ClassDef) and node.name == leaf(call.func) for node in tree.body)
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return None
    by_place = {} if own else dict(zip(["", _WIDTHS[0]], call.args, strict=False))
    given = by_place | {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return next((given[name] for name in _WIDTHS if name in given), None)


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
        arguments = sorted(given, key=lambda node: (node.lineno, node.col_offset))
        parts = [source.text(argument) for argument in arguments]
        if not value[:-1].rstrip().endswith(","):
            flat = f"{patch.text(made.func)}({', '.join(parts)})"
            lines = [f"{patch.text(made.func)}(", *(f"{step}{part}," for part in parts), ")"]
    laid_out = [f"{_ADD}(", f"{step}{model},", *(f"{step}{line}" for line in lines[:-1]), f"{step}{lines[-1]},", ")"]
    joined = [f"{_ADD}(", f"{step}{model}, {flat}", ")"]
    apart = [f"{_ADD}(", f"{step}{model},", f"{step}{flat},", ")"]
    for found in ([f"{_ADD}({model}, {flat})"], joined, apart) if flat and "\n" not in flat else ():
        if len(indent) + max(map(len, found)) <= limit:
            return "\n".join(found)
    return "\n".join(laid_out)
