"""A subclass of Megatron's model, or a wrapper around one, that keeps the output hook from arriving."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import takewhile

from mcore_unpatch.codemods.changes import AddArguments, AddParameters
from mcore_unpatch.codemods.codemod import AddImport, Codemod, Example, Fix, Left, Match, Mends, Note
from mcore_unpatch.codemods.standing import RemainingPatches
from mcore_unpatch.codemods.syntax import bound_in, identifiers, imported, is_value, leaf, parameters
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import NO_PATCHES, WRAPPER
from mcore_unpatch.library.syntax import dotted, sets_attribute
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.layout import GPT_MODEL, HOOK_ARGUMENTS, HOOK_SINCE, HYBRID_MODEL, MAMBA_MODEL
from mcore_unpatch.megatron.versions import RELEASES

_WITHOUT_FORWARD = ("torch.nn.Module", "abc.", "typing.", "object")
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
    def forward(
        self,
        ids,
        positions,
        mask,
        images=None,
        output_processor=None,
        output_processor_context=None,
    ):
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
the project asks for has the hook. Left are methods that make the output in several places, or return what another call
makes; classes below one that refuses the hook; and models that other code may put in the place of the one made.
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
        cls = source.parents[function]
        calls = list(self._calls(source, match, function, cls)) if isinstance(cls, ast.ClassDef) else []
        stored = {*bound_in(node for node in ast.walk(function) if not isinstance(node, ast.arg))} & {*HOOK_ARGUMENTS}
        apart = len(calls) > 1 and not all(isinstance(source.parents[call], ast.Return) for call in calls)
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
            yield Left("no call of `forward` or `_postprocess` that takes the two is seen in it")
        elif stored:
            yield Left(f"`{min(stored)}` is another name in it")
        elif apart:
            yield Left("it calls the model in several places: hand both on where the output is made")
        elif other := _without_hook(source, function, calls):
            yield Left(f"line {other.lineno} returns what another call makes, where no processor is asked")
        elif switched := sets_attribute(cls, "post_process", "self" if wraps else ""):
            yield Left(f"line {switched.lineno} sets `post_process`: without it Megatron returns before the hook")
        else:
            missing = [name for name in HOOK_ARGUMENTS if name not in parameters(function)]
            if missing:
                yield from _taking(source, function, missing)
            # Such a dict may hold the two already, which are then given twice.
            own = function.args.kwarg and function.args.kwarg.arg
            splats = [one for call in calls for one in call.keywords if one.arg is None and dotted(one.value) != own]
            if splats:
                told = " ".join(source.text(splats[0].value).strip("()").split())
                yield Note(f"the hook is handed by name from here on: who puts it in `{told}` as well gets a TypeError")
            if situation.options.floor(source.path) >= HOOK_SINCE:
                yield _mended(function, match, exact=not splats)
            for call in calls:
                yield AddArguments(call, tuple(f"{name}={name}" for name in HOOK_ARGUMENTS))

    def _calls(self, source: Source, match: Match, function: Function, cls: ast.ClassDef) -> Iterator[ast.Call]:
        """The calls that make the output: of the base's own method, Megatron's `_postprocess`, or a model held."""
        overridden = {item.name for item in cls.body if isinstance(item, Function)}
        held = set(self._held(source, match, cls)) if function.name == "forward" else set()
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            named, of = leaf(call.func), getattr(call.func, "value", None)
            if isinstance(of, ast.Call) and leaf(of.func) == "super" and named == function.name:
                makes = self._inherits(source, match, cls, named)
            elif dotted(call.func) == "self._postprocess":
                makes = named not in overridden and self._inherits(source, match, cls, named)
            else:
                makes = dotted(call.func).removesuffix(".forward") in held
            if makes and not {keyword.arg for keyword in call.keywords} & {*HOOK_ARGUMENTS}:
                yield call

    def _held(self, source: Source, match: Match, cls: ast.ClassDef) -> Iterator[str]:
        """`self.model` where each value that code gives it is made in the class, of one that takes it, or None."""
        made, other = set[str](), set[str]()
        for node in (one for one in ast.walk(cls) if isinstance(one, ast.Assign | ast.AnnAssign)):
            if is_value(node.value, None):
                continue
            value, targets = node.value, node.targets if isinstance(node, ast.Assign) else [node.target]
            headless = isinstance(value, ast.Call) and any(
                keyword.arg == "post_process" and is_value(keyword.value, False) for keyword in value.keywords
            )
            takes = isinstance(value, ast.Call) and not headless and self._takes_hook(source, match, value.func)
            (made if takes else other).update(map(dotted, targets))
        said = {node.value for node in ast.walk(cls) if isinstance(node, ast.Constant)}  # `setattr(self, "model", ...)`
        for path in made - other:
            name = path.removeprefix("self.")
            if path != name and name not in said and not _is_set_elsewhere(match, cls, name):
                yield path

    def _takes_hook(self, source: Source, match: Match, of: ast.expr, method: str = "forward") -> bool | None:
        """Whether a class takes the hook in a method, or will once this plan is made; None where it has no such."""
        head, *rest = dotted(of).split(".")
        full = ".".join([imported(source).get(head, head), *rest])
        if found := known.model(RELEASES[-1]).find(full):
            return GPT_MODEL in (found.name, *api.ancestry(found.name)) or None
        files, where = match.situation.files, source
        for node in source.every(ast.ImportFrom):
            if head in (alias.asname or alias.name for alias in node.names):
                path = files.locate(source.path, node.module or "", node.level)
                where = (path and files.readable(path)) or source
        classes = [node for node in where.tree.body if isinstance(node, ast.ClassDef) and node.name == head]
        if rest or not classes:
            return None if full.startswith(_WITHOUT_FORWARD) else False
        for function in (one for one in classes[0].body if isinstance(one, Function) and one.name == method):
            return {*HOOK_ARGUMENTS} <= {*parameters(function)} or self._will_take(where, match, function)
        return self._inherits(where, match, classes[0], method)

    def _inherits(self, source: Source, match: Match, cls: ast.ClassDef, method: str) -> bool | None:
        """Whether the first of the bases that has a method takes the hook in it."""
        answers = (self._takes_hook(source, match, base, method) for base in cls.bases)
        return next((answer for answer in answers if answer is not None), None)

    def _will_take(self, source: Source, match: Match, function: Function) -> bool:
        """Whether this plan gives a method the two parameters."""
        for finding in match.situation.open:
            if (finding.rule, finding.path, finding.line) == (match.rule, source.path, function.lineno):
                its = replace(match.situation, finding=finding)
                made = list(self.fix(source, replace(match, node=function, target=finding.target, situation=its)))
                return bool(made) and not any(isinstance(one, Left) for one in made)
        return False


def _mended(function: Function, match: Match, exact: bool) -> Mends:
    """What a caller with a processor gets today, on every Megatron on which the file can be imported."""
    name = match.target.rpartition(".")[2]
    if function.args.kwarg is not None:
        return Mends(f"a caller's output_processor is called, where `{name}` drops it and returns logits or the loss")
    return Mends(
        f"a caller's output_processor is called, where `{name}` raises TypeError", "exact" if exact else "behaviour"
    )


def _is_set_elsewhere(match: Match, cls: ast.ClassDef, name: str) -> bool:
    """Whether code gives an object of a class, or of one that derives from it, an attribute from outside."""
    for source in match.situation.files.sources_naming(cls.name):
        for node in source.every(ast.Attribute):
            if node.attr == name and isinstance(node.ctx, ast.Store):
                around = [one for one in source.above(node) if isinstance(one, ast.ClassDef)]
                heir = any(leaf(base) == cls.name for one in around for base in one.bases)
                if heir or (leaf(node.value) != "self" and cls not in around):
                    return True
    return False


def _without_hook(source: Source, function: Function, calls: Sequence[ast.Call]) -> ast.Return | None:
    """A return of what another call makes, on a way that comes by none of the calls."""
    for node in (one for one in ast.walk(function) if isinstance(one, ast.Return)):
        above = takewhile(lambda one: one is not function, source.above(node))
        around = [node, *(one for one in above if isinstance(one, ast.stmt))]
        before = [one for home in around for one in source.home[id(home)] if one.lineno <= node.lineno]
        sure = [one for one in before if not isinstance(one, ast.If | ast.For | ast.While | ast.Try)]
        reached = any(part in calls for one in sure for part in ast.walk(one))
        stage = any(isinstance(one, ast.If) and "post_process" in ast.unparse(one.test) for one in around)
        makes = any(isinstance(part, ast.Call) for part in ast.walk(node))
        if makes and not reached and not stage and source.function_of(node) is function:
            return node
    return None


def _taking(source: Source, function: Function, names: list[str]) -> Iterator[Fix]:
    """The parameters, with types as Megatron has them where most others have some, or some and `typing` is imported."""
    spec, known = function.args, imported(source)
    said = " ".join(ast.unparse(one.annotation) for one in (*spec.args, *spec.kwonlyargs) if one.annotation)
    bar = "| None" in said
    typing = any(isinstance(node, ast.ImportFrom) and node.module == "typing" for node in source.tree.body)
    typed = [bool(one.annotation) for one in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)[1:]]
    typing = typing or sum(typed) * 2 > len(typed)
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
