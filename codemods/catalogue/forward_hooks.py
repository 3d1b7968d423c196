"""Wrappers around `forward` of a module that call the original first.

One form alone: in one block the original is kept under a local name, the wrapper is defined, and it is assigned. What
it begins with is `out = original(...)` with all its arguments as they came, and it returns a value at its end.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mcore_unpatch.code.syntax import LOOPS, parent_of
from mcore_unpatch.codemods.changes import Header, Replace, Rewrite, above
from mcore_unpatch.codemods.codemod import Codemod, Example, Fix, Match, Note, Patch, find_patch
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.syntax import body_of, identifiers, is_name, is_value, leaf, names_in, walk_without
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.editing.source import Function, Source, first_line
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.repository.paths import is_test

FORWARD = "forward"
NOTES = (
    "a hook runs when the module is called, and not when something calls its `.forward(...)` directly",
    "it runs behind the hooks that the module has by then; the wrapper ran inside all of them",
    "no hook runs on a layer that a CUDA graph replays (`cuda_graph_impl`); on its parts it ran at the capture alone",
    "a forward hook that returns None leaves the output as it is; the wrapper's None was the output",
)
# YaRN's embedding calls its own `forward` for its cache, MimoModel that of its submodules.
_CALLED_BY_MEGATRON = ("RotaryEmbedding", "ModalitySubmodules", "rotary_pos_emb")


@dataclass(frozen=True)
class _Wrapper:
    """The statement that keeps the original, the function, and the one that puts it in the original's place."""

    patch: Patch
    keeps: ast.Assign
    function: ast.FunctionDef
    first: ast.Assign  # `out = original(...)`
    read: tuple[str, ...]  # the parameters that it reads by their names


class ForwardHooks(Codemod):
    """The wrapper becomes a hook of PyTorch on the same module."""

    name, title = "forward-hooks", "Wrappers around a module's forward"
    answers = ("MCU403", "MCU204")
    does = "a hook of PyTorch runs behind the module's forward"
    examples = (
        Example(
            "MCU403",
            before="""
from megatron.core.transformer.transformer_block import TransformerBlock


def add_adapter(block: TransformerBlock, adapter):
    original = block.forward

    def adapted(hidden_states, *args, **kwargs):
        out = original(hidden_states, *args, **kwargs)
        return out + adapter(hidden_states)

    block.forward = adapted
""",
            after="""
from megatron.core.transformer.transformer_block import TransformerBlock


def add_adapter(block: TransformerBlock, adapter):
    def adapted(_module, args, kwargs, out):
        hidden_states = args[0] if args else kwargs["hidden_states"]
        return out + adapter(hidden_states)

    block.register_forward_hook(adapted, with_kwargs=True)
""",
            unsafe=True,
        ),
    )
    covers = """
`module.forward = f`, for good, where `f` calls the original first, with the arguments that it was given, and returns
something made of the output
"""
    applied = """
With `--unsafe-fixes`. The original is kept under a local name, and the function is defined, in the block of the
assignment. Every other form is by hand, and so is a module whose `forward` something calls directly, or on which the
repository registers hooks, or that another kind of wrapper is around.
"""
    by_hand = """
- **Before the original.** What changes arguments is a pre-hook: `register_forward_pre_hook(f, with_kwargs=True)`.
- **For a while.** `handle = module.register_forward_hook(f)`, and `handle.remove()` where the original was put back.
- **Classes.** With the model at hand, register the hook on each of `model.modules()` that is of the class.
- **Whole models.** Megatron-FSDP up to 0.18 calls `forward` of the model that it wraps directly.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """A forward hook; of the patches of MTP layers wrappers alone."""
        wrapper = _wrapper(source, match)
        if match.situation.finding.seam == "hook" and wrapper is None:
            yield Left()
        elif match.situation.finding.seam == "hook" and wrapper is not None:
            left = _in_the_way(match, wrapper.patch)
            yield from [left] if left else _changes(wrapper)


def _wrapper(source: Source, match: Match) -> _Wrapper | None:
    """The parts of the form; None for every other."""
    patch, finding = find_patch(source, match), match.situation.finding
    if patch is None or finding.shape != "instance-attr" or finding.confidence == "possible":
        return None
    around, function, statement = patch.around, patch.function, patch.statement
    put_back = finding.temporary or any(one.role == "restore" for one in finding.related)
    if put_back or around is None or not isinstance(function, ast.FunctionDef) or patch.target.attr != FORWARD:
        return None
    suite = source.suite(statement)
    before = suite[: suite.index(statement)]
    assigned, target = [one for one in before if isinstance(one, ast.Assign)], ast.unparse(patch.target)
    keeps = [one for one in assigned if ast.unparse(one.value) == target]
    original = leaf(keeps[0].targets[0]) if len(keeps) == 1 and function in before else ""
    first = _first(function, original) if original else None
    read = _read(function, first) if first is not None else None
    if first is None or read is None or _is_looked_at(patch, function, keeps[0], original):
        return None
    whole = all(map(source.owns_lines, [keeps[0], function, statement, first]))
    return _Wrapper(patch, keeps[0], function, first, read) if whole else None


def _first(function: ast.FunctionDef, original: str) -> ast.Assign | None:
    """`out = original(...)`, the first statement, if all arguments are handed on and a value is returned at the end."""
    spec, body = function.args, body_of(function)
    first = body[0]
    given = [one.arg for one in spec.args]
    given += [f"*{spec.vararg.arg}"] if spec.vararg else []
    given += [f"**{spec.kwarg.arg}"] if spec.kwarg else []
    if not isinstance(first, ast.Assign) or ast.unparse(first.value) != f"{original}({', '.join(given)})":
        return None
    odd = spec.defaults or spec.kwonlyargs or spec.posonlyargs or not isinstance(first.targets[0], ast.Name | ast.Tuple)
    wraps = [one for one in function.decorator_list if isinstance(one, ast.Call) and leaf(one.func) == "wraps"]
    inner = [node for one in body for node in ast.walk(one)]
    special = any(isinstance(one, ast.Yield | ast.YieldFrom) for one in inner)
    plain = not odd and not special and len(wraps) == len(function.decorator_list) and len(first.targets) == 1
    return first if plain and isinstance(body[-1], ast.Return) and not any(map(_may_be_none, inner)) else None


def _may_be_none(node: ast.AST) -> bool:
    """Whether None is returned, or given to a name: a hook that returns None would keep the output."""
    if not isinstance(node, ast.Return | ast.Assign):
        return False
    return node.value is None or any(is_value(part, None) for part in ast.walk(node.value))


def _read(function: ast.FunctionDef, first: ast.Assign) -> tuple[str, ...] | None:
    """The parameters with names that come after the original; None where `*args` or `**kwargs` do."""
    spec = function.args
    used = {name for one in body_of(function) if one is not first for name in names_in(one)}
    bound = names_in(first.targets[0])
    rest = {one.arg for one in (spec.vararg, spec.kwarg) if one is not None}
    new = {"_module", "_args", "args", "kwargs", "outputs"} - rest
    if rest & used or new & identifiers(function) or bound & {*rest, *(one.arg for one in spec.args)}:
        return None
    return tuple(one.arg for one in spec.args if one.arg in used)


def _is_looked_at(patch: Patch, function: ast.FunctionDef, keeps: ast.Assign, original: str) -> bool:
    """Whether something else sees the module's `forward`, the original or the wrapper, or any may be another there."""
    source, around = patch.source, patch.around
    assert around is not None
    names = [node for node in ast.walk(around) if isinstance(node, ast.Name)]
    said = Counter(node.id for node in names)
    stored = Counter(node.id for node in names if isinstance(node.ctx, ast.Store))
    stored.update(one.arg for one in ast.walk(around.args) if isinstance(one, ast.arg))
    if any(stored[root] > 1 for root in names_in(patch.target)):
        return True
    if said[original] != 2 + len(function.decorator_list) or said[function.name] != 1:
        return True
    if any(isinstance(node, LOOPS) for node in source.above(patch.statement)):
        return True
    others = [
        node for node in walk_without(around, [keeps, function, patch.statement]) if isinstance(node, ast.Attribute)
    ]
    texts = any(is_value(node, FORWARD) for node in source.every(ast.Constant))  # `getattr(module, "forward")`
    return texts or any(ast.unparse(node) == ast.unparse(patch.target) for node in others)


def _in_the_way(match: Match, patch: Patch) -> Left | None:
    """Why a hook does not run where the wrapper did, or in another order than other wrappers."""
    situation, finding = match.situation, match.situation.finding
    owner, name = finding.target.split(".")[-2], _name_of(patch.target.value, patch.around)
    if owner.endswith(_CALLED_BY_MEGATRON) or name in _CALLED_BY_MEGATRON:
        return Left(Refusal.RELIED_ON, owner)
    for other in situation.staying.findings:
        if other is not finding and not other.in_test and _may_be_the_same(other, finding):
            source = situation.files.readable(other.path) if other.path in situation.files.editable else None
            node = source.starting.get((other.line, other.column - 1)) if source else None
            around = replace(situation, finding=other)
            if source is None or node is None or _wrapper(source, replace(match, node=node, situation=around)) is None:
                return Left(Refusal.BELOW, f"{other.path}:{other.line}")
    held, model = {name, leaf(patch.target.value)} - {""}, owner.endswith("Model")
    index = situation.files.names.index
    for path in dict.fromkeys([*index.saying(".forward"), *index.saying(".register_forward_")]):
        source = situation.files.readable(path) if not is_test(path) else None
        for node in source.every(ast.Attribute) if source else ():
            direct = node.attr == FORWARD
            if source is None or not (direct or node.attr.startswith("register_forward_")) or not _is_handed_on(node):
                continue
            theirs = _name_of(node.value, source.function_of(node))
            here = path == patch.source.path and direct and isinstance(node.value, ast.Name)
            if theirs in held or (model and theirs.endswith("model")) or here:
                return Left(Refusal.RELIED_ON, f"{path}:{node.lineno}")
    return None


def _may_be_the_same(other: Finding, finding: Finding) -> bool:
    if not other.target.endswith(f".{FORWARD}"):
        return False
    if "possible" in (other.confidence, finding.confidence):  # their classes are guessed
        return other.path == finding.path
    return other.target == finding.target


def _is_handed_on(node: ast.Attribute) -> bool:
    """Whether an attribute is called, or an argument of a call."""
    upper = parent_of(node)
    return isinstance(upper, ast.Call | ast.keyword) and not isinstance(node.value, ast.Call)


def _name_of(node: ast.expr, around: Function | None) -> str:
    """What a module is called by the one that holds it, also where a local stands for it."""
    while isinstance(node, ast.Subscript):
        node = node.value
    assigned = [one for one in ast.walk(around) if isinstance(one, ast.Assign)] if around else []
    values = [one.value for one in assigned if isinstance(node, ast.Name) and is_name(one.targets[0], node.id)]
    if len(values) == 1 and isinstance(values[0], ast.Attribute | ast.Subscript):
        return _name_of(values[0], None)
    return leaf(node)


def _changes(wrapper: _Wrapper) -> Iterator[Fix]:
    """The function as a hook, registered where it was assigned; what kept the original goes."""
    patch, function, first, source = wrapper.patch, wrapper.function, wrapper.first, wrapper.patch.source
    target, spec, body, keeps = first.targets[0], function.args, body_of(function), wrapper.keeps
    if isinstance(target, ast.Name) and len(body) > 1:
        output, begin = target.id, body[1]
        yield from remove(source, [first])
    else:
        output, begin = "outputs", first
        yield Replace(first.value, output)
    args, kwargs = (one.arg if one else word for one, word in ((spec.vararg, "args"), (spec.kwarg, "kwargs")))
    reads = []
    for index, one in enumerate(spec.args):
        if one.arg in wrapper.read:
            has = f"len({args}) > {index}" if index else args
            reads.append(f'{one.arg} = {args}[{index}] if {has} else {kwargs}["{one.arg}"]')
    if reads:
        yield above(source, begin, "\n".join(reads))
    given = ["_module", *([args, kwargs] if reads else ["_args"]), output]
    yield Header(function, ", ".join(given))
    options = ", with_kwargs=True" if reads else ""
    call = f"{source.text(patch.target.value)}.register_forward_hook({function.name}{options})"
    said = [source.line(number).strip() for number in range(source.first_with_comments(keeps), first_line(keeps))]
    yield from remove(source, [keeps])
    yield Rewrite(patch.statement, "\n".join([*said, call]), tell_checkers=False)
    yield from map(Note, NOTES)
