"""An LM-head wrapper that hands its input through becomes our processor on the hook."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.codemods.changes import Rewrite, above
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.lm_head.model import PatchedModel, find_model
from mcore_unpatch.codemods.seams.lm_head.passthrough import Passthrough, read_passthrough
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, find_patch, is_taken
from mcore_unpatch.codemods.seams.said import CommentCollector
from mcore_unpatch.codemods.seams.undo import FORWARD, Undoing, plan_undoing
from mcore_unpatch.codemods.source import last_line, suites
from mcore_unpatch.codemods.syntax import (
    identifiers,
    is_name,
    is_one_of,
    names_outside,
    shared_names,
    walk_without,
)

PROCESSOR, KEEPER = "HeadInputs", "keep_weight"


def to_hook(patch: Patch) -> Rewritten | str:
    """The rewrite, or why the form is not a known one."""
    function, wrapping = patch.function, patch.alike()
    if patch.around is None:
        return "the patch is at the top level of the file"
    if patch.target.attr != FORWARD:
        return f"`{patch.target.attr}` is replaced, not `{FORWARD}`"
    if function is None:
        return f"`{patch.text(patch.statement.value)}` is not a plain function of this file"
    if carrier := _carrier(patch):
        return (
            f"`{patch.around.name}` carries it, which line {carrier} puts in the place of `GPTModel.forward`: move both"
        )
    if sum(one is patch.around for one in wrapping) > 1:
        return f"`{patch.around.name}` patches more than one layer"
    if not patch.source.owns_lines(patch.statement):
        return f"line {patch.statement.lineno} holds more than one statement"
    through = read_passthrough(function, patch.bound, patch.text(patch.target.value))
    if through is None:
        return f"`{function.name}` does more than return its input and keep the weight"
    scope = patch.around if is_one_of(function, ast.walk(patch.around)) else patch.source.tree
    if sum(is_name(node, function.name) for node in ast.walk(scope)) != 1:
        return f"`{function.name}` is also used elsewhere"
    model = find_model(patch)
    if isinstance(model, str):
        return model
    if through.original is not None and not _is_kept(through, patch):
        return f"`{ast.unparse(through.original)}` is not known to be the layer's own forward"
    undoing = plan_undoing(patch, [function], wrapping)
    if isinstance(undoing, str):
        return undoing
    for name in (PROCESSOR, "attach"):
        if is_taken(name, patch.source):
            return f"the name `{name}` is taken"
    writer = _Writer(patch, through, model, undoing)
    rewrite = writer.write()
    emptied = any(all(is_one_of(one, writer.removed) for one in suite) for suite in suites(patch.source.tree))
    return "a block would be left empty" if emptied and isinstance(rewrite, Rewritten) else rewrite


def _carrier(patch: Patch) -> int:
    """The line of the patch that puts the function around this one in the place of the model's own forward."""
    for one in patch.situation.staying.findings:
        if one.path == patch.source.path and one.target.endswith(f"Model.{FORWARD}"):
            other = find_patch(replace(patch.situation, finding=one))
            if other is not None and other.function is patch.around:
                return one.line
    return 0


class _Writer:
    def __init__(self, patch: Patch, through: Passthrough, model: PatchedModel, undoing: Undoing) -> None:
        assert patch.around is not None
        self.patch, self.through, self.model, self.undoing = patch, through, model, undoing
        self.source, self.around = patch.source, patch.around
        self.changes = [*undoing.changes]
        self.gone: list[ast.AST] = [patch.statement, *undoing.replaced]
        self.removed: list[ast.stmt] = []
        self.said = CommentCollector(self.source)
        for statement in undoing.removed:
            self._remove(statement)

    def write(self) -> Rewritten | str:
        self.gone.append(self.through.function)
        for node in self._asked_for():
            return f"line {node.lineno} checks whether a weight was captured"
        places = self.through.kept_in
        once = bool(places or self.through.condition) and not self.undoing.handle
        if once and any(isinstance(node, ast.Call) and self._is_model(node.func) for node in ast.walk(self.around)):
            return f"`{self.around.name}` installs it at every call of the model and never removes it"
        notes = (*NOTES, *([WEIGHT_NOTE] if places else []), *([ONCE] if once else []))
        if not places:
            self._remove_function()
            return self._install(f"{PROCESSOR}()", [PROCESSOR, "attach"], notes)
        if KEEPER in identifiers(self.around):
            return f"the name `{KEEPER}` is taken"
        self._keep_in(places)
        return self._install(f"{PROCESSOR}(keep={KEEPER})", [PROCESSOR, "attach"], notes)

    def _is_model(self, node: ast.expr) -> bool:
        return ast.unparse(node) == self.model.text

    def _asked_for(self) -> Iterator[ast.expr]:
        """Where code wants to know if a weight was kept, other than to take the layer's own instead."""
        places = {ast.unparse(place) for place in self.through.kept_in}
        for node in walk_without(self.source.tree, self.gone) if places else ():
            if isinstance(node, ast.Compare) and ast.unparse(node.left) in places:
                if not isinstance(self.source.parents[node], ast.IfExp | ast.If):
                    yield node

    def _install(self, processor: str, names: list[str], notes: tuple[str, ...]) -> Rewritten | str:
        """The call in the place of the assignment, with what comes before it."""
        statement = self.patch.statement
        self._remove_unused_layer()
        if self.model.made_by_a_call and not self._is_made_once():
            return f"`{self.model.text}` would be made twice"
        when = f", when=lambda: {_condition(self.patch, self.through)}" if self.through.condition is not None else ""
        call = f"attach({self.model.text}, {processor}{when})"
        self.said.inside(statement)
        lines = self.said.lines()
        lines.append(f"{self.undoing.handle} = {call}" if self.undoing.handle else call)
        lift = self.undoing.lift
        if lift is None:
            self.changes.append(Rewrite(statement, "\n".join(lines), tell_checkers=False))
        else:
            self.changes.append(above(self.source, lift, "\n".join(lines)))
            self.removed.append(statement)
        self.changes += remove(self.source, self.removed, with_comments=True)
        return Rewritten(self.changes, names, notes)

    def _remove(self, statement: ast.stmt) -> None:
        """A statement's lines and the comment above it, which moves to the call."""
        self.removed.append(statement)
        self.gone.append(statement)
        self.said.between(self.source.first_with_comments(statement), last_line(statement))

    def _remove_function(self) -> None:
        """The function goes; what it had to say goes above the call."""
        self.removed.append(self.through.function)
        self.said.by(self.through.function, above=True)

    def _remove_unused_layer(self) -> None:
        """`layer = model.output_layer`, where nothing asks for the layer any more."""
        layer = self.patch.target.value
        if not isinstance(layer, ast.Name) or self.undoing.handle.startswith(f"{layer.id}."):
            return
        for node in ast.walk(self.around):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and is_name(node.targets[0], layer.id):
                unused = layer.id not in names_outside(self.around, [*self.gone, node])
                if unused and layer.id not in shared_names(self.around) and self.source.owns_lines(node):
                    self._remove(node)

    def _is_made_once(self) -> bool:
        layer = self.patch.target.value
        return not isinstance(layer, ast.Name) or layer.id not in names_outside(self.around, self.gone)

    def _keep_in(self, places: tuple[ast.expr, ...]) -> None:
        """A function that keeps the weight where the passthrough kept it."""
        function = self.through.function
        indent, first = self.source.indentation(function), function.body[0]
        step = "\t" if indent.startswith("\t") else "    "
        if first.lineno > function.lineno:
            step = self.source.indentation(first).removeprefix(indent)
        given = function.args.args[self.patch.bound].annotation
        annotation = f": {self.patch.text(given)}" if given is not None else ""
        returned = " -> None" if given is not None or function.returns is not None else ""
        said = CommentCollector(self.source)
        said.by(function, above=False)
        body = [*said.lines(), *(f"{self.patch.text(place)} = weight" for place in places)]
        text = f"def {KEEPER}(weight{annotation}){returned}:\n" + "\n".join(f"{step}{line}" for line in body)
        self.changes.append(Rewrite(function, text))


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


def _is_kept(through: Passthrough, patch: Patch) -> bool:
    """Whether what is called where the passthrough is off is what a backup keeps."""
    assert through.original is not None
    lines = {related.line for related in patch.finding.related if related.role == "backup"}
    kept = (node for node in ast.walk(patch.source.tree) if isinstance(node, ast.Assign) and node.lineno in lines)
    places = {ast.unparse(target) for node in kept for target in node.targets}
    called, layer = ast.unparse(through.original), patch.text(patch.target.value)
    if patch.bound and isinstance(through.original, ast.Attribute):
        first = through.function.args.args[0].arg  # the layer, by the function's own name for it
        called = f"{layer}.{through.original.attr}" if is_name(through.original.value, first) else called
    return called in places


NOTES = (
    "the hook runs once, after MTP: the output layer keeps its own forward for the MTP depths",
    "calls for inference keep Megatron's own path",
)
WEIGHT_NOTE = "the weight that is kept is always the one in use; the passthrough was given None for the layer's own"
ONCE = "run twice for one model, this raises: before, the second wrapper hid the first"
