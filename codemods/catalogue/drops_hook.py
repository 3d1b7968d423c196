"""A subclass of Megatron's model, or a wrapper around one, that keeps the output hook from arriving."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from mcore_unpatch.codemods.changes import AddParameters, Argument
from mcore_unpatch.codemods.codemod import AddImport, Codemod, Example, Fix, Left, Match
from mcore_unpatch.codemods.standing import RemainingPatches
from mcore_unpatch.codemods.syntax import identifiers, imported, is_value, leaf, parameters
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import NO_PATCHES, WRAPPER
from mcore_unpatch.library.syntax import dotted, sets_attribute
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.layout import GPT_MODEL, HOOK_ARGUMENTS, HYBRID_MODEL, MAMBA_MODEL
from mcore_unpatch.megatron.versions import RELEASES

_TYPES = {"typing.Any", "typing.Callable", "collections.abc.Callable"}


class DropsHook(Codemod):
    """The method takes the two parameters and hands them on."""

    name, title = "drops-the-hook", "Models that drop the output hook"
    answers = ("MCU105",)
    does = "takes the output hook and passes it on"
    examples = (
        Example(
            "MCU105",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel


class VisionModel(GPTModel):
    def forward(self, ids, positions, mask, images=None):
        return super().forward(
            ids,
            positions,
            mask,
            self.embed(ids, images),
        )
""",
            after="""
from megatron.core.models.gpt.gpt_model import GPTModel


class VisionModel(GPTModel):
    def forward(self, ids, positions, mask, images=None, output_processor=None, output_processor_context=None):
        return super().forward(
            ids,
            positions,
            mask,
            self.embed(ids, images),
            output_processor=output_processor,
            output_processor_context=output_processor_context,
        )
""",
            unsafe=True,
        ),
    )
    covers = """
subclasses of `GPTModel` that override `forward` or `_postprocess`, and modules that make a GPTModel, or a model of
the repository that takes the hook, and call it in their `forward`
"""
    applied = """
With `--unsafe-fixes`, where the method calls `super()`'s own or `self._postprocess` of Megatron, and every release that
the project asks for has the hook.
"""
    by_hand = """
- **A method that makes the output itself** has no call to pass the hook to: call the processor there.
- **A class that sets `post_process`**, for a while or for good: where it is false, Megatron returns the hidden states
  and never asks the hook. Call the processor on them.
- **A module that is given a model** may hold one without the hook, which raises for the two arguments (HybridModel and
  MambaModel, T5, models of your own): take them as `**kwargs` and pass on what you are given.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """Two parameters more, and two arguments in each call that makes the output."""
        function, situation = match.node, match.situation
        if not isinstance(function, Function) or match.target.rpartition(".")[0] in (HYBRID_MODEL, MAMBA_MODEL):
            return
        calls = list(_calls(source, function, lambda name: self._takes_hook(source, match, name)))
        wraps = situation.finding.shape == WRAPPER
        # Another class that drops the hook is no patch.
        patches = tuple(finding for finding in situation.staying.findings if finding.shape not in NO_PATCHES)
        below = RemainingPatches(patches).in_the_way(source.path)
        if older := situation.options.without_hook(source.path):
            yield Left(older)
        elif below:
            yield Left(below)
        elif wraps and not calls:
            yield Left("the model that it calls is not known to take the two arguments, and may raise for them")
        elif not calls:
            yield Left(f"line {function.lineno} makes the output itself")
        elif switched := sets_attribute(source.parents[function], "post_process", "self" if wraps else ""):
            yield Left(f"line {switched.lineno} sets `post_process`: without it Megatron returns before the hook")
        else:
            missing = [name for name in HOOK_ARGUMENTS if name not in parameters(function)]
            if missing:
                yield from _taking(source, function, missing)
            for call in calls:
                yield from (Argument(call, f"{name}={name}") for name in HOOK_ARGUMENTS)

    def _takes_hook(self, source: Source, match: Match, name: str) -> bool:
        """Whether a class of the repository takes the hook in its `forward`, or will once this plan is made."""
        situation = match.situation
        where: Source | None = source
        for node in source.every(ast.ImportFrom):
            if name in (alias.asname or alias.name for alias in node.names):
                path = situation.files.locate(source.path, node.module or "", node.level)
                where = situation.files.readable(path) if path else None
        classes = [node for node in where.tree.body if getattr(node, "name", "") == name] if where else []
        for function in (one for cls in classes for one in getattr(cls, "body", ()) if isinstance(one, Function)):
            if function.name != "forward" or where is None:
                continue
            if {*HOOK_ARGUMENTS} <= {*parameters(function)}:
                return True
            for finding in situation.open:
                if (finding.rule, finding.path, finding.line) == (match.rule, where.path, function.lineno):
                    its = replace(situation, finding=finding)
                    made = list(self.fix(where, replace(match, node=function, target=finding.target, situation=its)))
                    return bool(made) and not any(isinstance(one, Left) for one in made)
        return False


def _taking(source: Source, function: Function, names: list[str]) -> Iterator[Fix]:
    """The parameters, with types as Megatron has them where the others have some and `typing` is imported already."""
    spec, known = function.args, imported(source)
    said = " ".join(ast.unparse(one.annotation) for one in (*spec.args, *spec.kwonlyargs) if one.annotation)
    bar = "| None" in said
    typing = any(isinstance(node, ast.ImportFrom) and node.module == "typing" for node in source.tree.body)
    means = {name: known.get(name, "") for name in ("Any", "Callable")}
    others = identifiers(source.tree) - {name for name, full in means.items() if full in _TYPES}
    if not said or not typing or others & {*means} or not (bar or known.get("Optional") == "typing.Optional"):
        yield AddParameters(function, tuple(f"{name}=None" for name in names))
        return
    types = dict(zip(HOOK_ARGUMENTS, ("Callable[..., Any]", "Any"), strict=True))
    style = "{}: {} | None = None" if bar else "{}: Optional[{}] = None"
    yield AddParameters(function, tuple(style.format(name, types[name]) for name in names))
    needed = (name for name in means if any(name in types[taken] for taken in names))
    yield from (AddImport("typing", name) for name in needed if not means[name])


def _calls(source: Source, function: Function, takes_hook: Callable[[str], bool]) -> Iterator[ast.Call]:
    """The calls that make the output, of the base's own method, of `_postprocess` as Megatron has it, or of a model."""
    around = source.parents[function]
    overridden = {item.name for item in getattr(around, "body", ()) if isinstance(item, Function)}
    built = _built(source, around, takes_hook) if function.name == "forward" else ()
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        of_base = ast.unparse(call.func) == f"super().{function.name}"
        own = dotted(call.func) == "self._postprocess" and leaf(call.func) not in overridden
        if (of_base or own or dotted(call.func) in built) and not {keyword.arg for keyword in call.keywords} & set(
            HOOK_ARGUMENTS
        ):
            yield call


def _built(source: Source, cls: ast.AST, takes_hook: Callable[[str], bool]) -> set[str]:
    """`self.model` where each value that the class gives it is made there, of a class that takes the hook, or None."""
    made, other, names = set[str](), set[str](), imported(source)
    given = (node for node in ast.walk(cls) if isinstance(node, ast.Assign | ast.AnnAssign))
    for node in (one for one in given if not is_value(one.value, None)):
        head, *rest = dotted(node.value.func if isinstance(node.value, ast.Call) else node).split(".")
        found = known.model(RELEASES[-1]).find(".".join([names.get(head, head), *rest]))
        targets = [*map(dotted, node.targets if isinstance(node, ast.Assign) else [node.target])]
        is_self = any(target.startswith("self.") for target in targets)
        takes = found.name == GPT_MODEL if found else is_self and not rest and bool(head) and takes_hook(head)
        (made if takes else other).update(targets)
    return made - other - {""}
