"""An LM-head wrapper of a known form becomes the hook: our processor, or its own body where that does more."""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.seams.lm_head.model import Model, find_model
from mcore_unpatch.codemods.seams.lm_head.own_body import as_processor
from mcore_unpatch.codemods.seams.lm_head.passthrough import (
    Passthrough,
    names_in,
    parameters,
    read_passthrough,
)
from mcore_unpatch.codemods.seams.lm_head.undo import Undoing, plan_undoing, with_pragma
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Source, first_line, last_line, suites
from mcore_unpatch.codemods.workbench import Workbench

COMPAT = "mcore_unpatch.compat"
PROCESSOR, INSTANCE, KEEPER = "HeadInputs", "head", "keep_weight"
_PRAGMAS = ("# type:", "# noqa", "# pylint", "# pragma", "# fmt", "# pyright", "# mypy")


@dataclass(frozen=True)
class Rewrite:
    """The changes, the names they need from the compat layer, and the nodes they take away."""

    changes: list[Change]
    names: list[str]
    notes: tuple[str, ...]
    gone: list[ast.AST] = field(default_factory=list)


def to_hook(patch: Patch, files: Workbench) -> Rewrite | str:
    """The rewrite, or why the form is not a known one."""
    if patch.function is None or patch.around is None:
        return "the replacement is not a function of this file, or the patch stands outside of a function"
    if patch.target.attr != "forward":
        return f"`{patch.target.attr}` is replaced, not `forward`"
    through = read_passthrough(patch.function, patch.bound)
    if through is None:
        return f"`{patch.function.name}` does more than to hand its input through"
    uses = [
        node for node in ast.walk(patch.source.tree) if isinstance(node, ast.Name) and node.id == patch.function.name
    ]
    if len(uses) != 1:
        return f"`{patch.function.name}` is used elsewhere as well"
    model = find_model(patch, files)
    if isinstance(model, str):
        return model
    if through.original is not None and not _is_kept(through.original, patch):
        return f"`{ast.unparse(through.original)}` is not seen to be the layer's own forward"
    undoing = plan_undoing(patch, [through.function] if through.plain else [])
    if isinstance(undoing, str):
        return undoing
    return _Writer(patch, through, model, undoing).write()


class _Writer:
    def __init__(self, patch: Patch, through: Passthrough, model: Model, undoing: Undoing) -> None:
        assert patch.around is not None
        self.patch, self.through, self.model, self.undoing = patch, through, model, undoing
        self.source, self.around = patch.source, patch.around
        self.changes = [*model.changes, *undoing.changes]
        self.gone: list[ast.AST] = [patch.statement, *undoing.gone]
        self.lines: list[str] = []  # what stands before the call of `attach`

    def write(self) -> Rewrite | str:
        if not self.through.plain:
            self.changes += as_processor(self.patch)
            self._install(self.through.function.name)
            return Rewrite(self.changes, ["attach"], OWN_NOTES, self.gone)
        self.gone.append(self.through.function)
        if not _removable(self.through.function, self.source):
            return f"nothing but `{self.through.function.name}` stands in its block"
        taken = names_in(self.around) | set(parameters(self.around))
        places = self.through.kept_in
        reads = self._reads_of_local(places) if INSTANCE not in taken else None
        if not places:
            self._remove_function()
            self._install(f"{PROCESSOR}()")
        elif reads is not None:
            self._remove_function()
            self.changes += reads
            self.lines.append(f"{INSTANCE} = {PROCESSOR}()")
            self._install(INSTANCE)
        elif KEEPER in taken:
            return f"the name `{KEEPER}` is taken"
        else:
            self._keep_in(places)
            self._install(f"{PROCESSOR}(keep={KEEPER})")
        once = bool(places or self.through.condition) and not self.undoing.handle
        return Rewrite(self.changes, [PROCESSOR, "attach"], (*NOTES, ONCE) if once else NOTES, self.gone)

    def _install(self, processor: str) -> None:
        """The call in the place of the assignment, with what comes before it."""
        statement, through = self.patch.statement, self.through
        when = f", when=lambda: {_condition(self.patch, through)}" if through.condition is not None else ""
        call = f"attach({self.model.text}, {processor}{when})"
        self.lines.append(f"{self.undoing.handle} = {call}" if self.undoing.handle else call)
        indent = self.source.indentation(statement)
        span = with_pragma(self.source, statement)
        self.changes.append(Change(span, f"\n{indent}".join(self.lines)))
        self._remove_unused_layer()
        self._tidy_start()
        if self.model.layer_line is not None and self.model.layer in names_outside(self.around, self.gone):
            self.changes.append(self.model.layer_line)

    def _remove_unused_layer(self) -> None:
        """`layer = model.output_layer`, where nothing asks for the layer any more."""
        layer = self.patch.target.value
        name = layer.id if isinstance(layer, ast.Name) and not self.undoing.handle.startswith(f"{layer.id}.") else ""
        for node in ast.walk(self.around):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is(node.targets[0], name):
                gone = [*self.gone, node]
                if name not in names_outside(self.around, gone) and _removable(node, self.source):
                    self.changes.append(Change(self.source.line_span(first_line(node), last_line(node)), ""))
                    self.gone = gone

    def _tidy_start(self) -> None:
        """No blank line at the start of a block, where all that stood before it goes."""
        removed = [change.span for change in self.changes if not change.text]
        for suite in suites(self.around):
            if not any(suite[0] is one for one in self.gone):
                continue
            number = self.source.first_with_comments(suite[0])
            while number <= last_line(suite[-1]):
                span = self.source.line_span(number, number)
                if not any(one.start <= span.start and span.end <= one.end for one in removed):
                    if not self.source.is_blank(number):
                        break
                    self.changes.append(Change(span, ""))
                number += 1

    def _remove_function(self) -> None:
        """The function's lines and the blank ones after it; what it had to say goes above the call."""
        function = self.through.function
        first, last = self.source.first_with_comments(function), last_line(function)
        while last < len(self.source.lines) and self.source.is_blank(last + 1):
            last += 1
        while last == len(self.source.lines) and self.source.is_blank(first - 1):
            first -= 1
        self.changes.append(Change(self.source.line_span(first, last), ""))
        self.lines += _said(self.source, function)

    def _keep_in(self, places: tuple[ast.expr, ...]) -> None:
        """A function that keeps the weight where the passthrough kept it."""
        function = self.through.function
        indent = self.source.indentation(function)
        inner = (
            self.source.indentation(function.body[0]) if function.body[0].lineno > function.lineno else f"{indent}    "
        )
        said = _said(self.source, function, above=False)
        body = [*said, *(f"{self.patch.text(place)} = weight" for place in places)]
        text = f"def {KEEPER}(weight):\n" + "\n".join(f"{inner}{line}" for line in body)
        self.changes.append(Change(self.source.span(function), text))

    def _reads_of_local(self, places: tuple[ast.expr, ...]) -> list[Change] | None:
        """Where the weight is kept in a local dict for this function alone: reads of the processor instead."""
        place = places[0] if len(places) == 1 else None
        if not isinstance(place, ast.Subscript) or not isinstance(place.value, ast.Name):
            return None
        name, made, reads = place.value.id, None, []
        inside = {id(node) for node in ast.walk(self.through.function)}
        accounted = 0
        for node in ast.walk(self.around):
            if id(node) in inside:
                continue
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is(node.targets[0], name):
                if made is not None or not isinstance(node.value, ast.Dict) or not _removable(node, self.source):
                    return None
                if any(value is None or not isinstance(value, ast.Constant) for value in node.value.values):
                    return None
                made, accounted = node, accounted + 1
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _same(node, place):
                reads.append(Change(self.source.span(node), f"{INSTANCE}.weight"))
                accounted += 1
        mentioned = sum(_is(node, name) for node in ast.walk(self.around) if id(node) not in inside)
        if made is None or mentioned != accounted:
            return None
        self.gone.append(made)
        return [Change(self.source.line_span(first_line(made), last_line(made)), ""), *reads]


def _condition(patch: Patch, through: Passthrough) -> str:
    """When the passthrough is on."""
    condition = through.condition
    assert condition is not None
    if not through.negated:
        return patch.text(condition)
    if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
        return patch.text(condition.operand)
    simple = isinstance(condition, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    return f"not {patch.text(condition)}" if simple else f"not ({patch.text(condition)})"


def _is_kept(original: ast.expr, patch: Patch) -> bool:
    """Whether what is called where the passthrough is off is what a backup keeps."""
    lines = {related.line for related in patch.finding.related if related.role == "backup"}
    kept = (node for node in ast.walk(patch.source.tree) if isinstance(node, ast.Assign) and node.lineno in lines)
    return _leaf(original) in {_leaf(target) for node in kept for target in node.targets}


def _leaf(expression: ast.expr) -> str:
    return expression.attr if isinstance(expression, ast.Attribute) else ast.unparse(expression)


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _same(node: ast.Subscript, place: ast.Subscript) -> bool:
    return ast.unparse(node) == ast.unparse(place)


def _removable(statement: ast.stmt, source: Source) -> bool:
    return any(len(suite) > 1 and any(one is statement for one in suite) for suite in suites(source.tree))


def _said(source: Source, function: ast.FunctionDef, above: bool = True) -> list[str]:
    """The comments and docstring of a function as comments; those for tools, or on a `del`, say nothing to people."""
    first = source.first_with_comments(function) if above else first_line(function)
    text = textwrap.dedent(source.text_of(source.line_span(first, last_line(function))))
    comments = {
        first + token.start[0] - 1: token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(_PRAGMAS)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Delete):
            comments.pop(node.lineno, None)
    documented = [f"# {line}".rstrip() for line in (ast.get_docstring(function) or "").splitlines()]
    before = [comment for line, comment in sorted(comments.items()) if line < function.body[0].lineno]
    return [*before, *documented, *(comment for line, comment in sorted(comments.items()) if comment not in before)]


def unused_imports(tree: ast.Module, gone: Sequence[ast.AST]) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
    """Imports of what binds a method, which only code that goes made use of."""
    left = names_outside(tree, gone)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.module == "types"):
            wanted = "types" if isinstance(node, ast.Import) else "MethodType"
            for alias in node.names:
                if alias.name == wanted and (alias.asname or wanted) not in left:
                    yield node, wanted


def names_outside(tree: ast.AST, gone: Sequence[ast.AST]) -> set[str]:
    """The names that code mentions which stays."""
    found: set[str] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if any(node is one for one in gone):
            continue
        if isinstance(node, ast.Name):
            found.add(node.id)
        waiting += ast.iter_child_nodes(node)
    return found


NOTES = (
    "the hook runs once, after MTP: the output layer keeps its own forward for the MTP depths",
    "calls for inference keep Megatron's own path",
)
ONCE = "run twice for one model, this raises: before, the second wrapper hid the first"
OWN_NOTES = (
    *NOTES,
    "MuP: Megatron scaled what the passthrough returned; call `scale_logits` in the processor where that is wanted",
)
