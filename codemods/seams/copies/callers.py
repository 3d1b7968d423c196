"""Calls of models in the repository: whether each is still what it was once Megatron's own forward takes it."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Collection
from dataclasses import dataclass

from mcore_unpatch.codemods.seams.copies.reading import ForwardCopy
from mcore_unpatch.codemods.seams.copies.upstream import CALLED, METHODS
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.syntax import leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.library.fact import Parameters
from mcore_unpatch.megatron.known import called_with
from mcore_unpatch.megatron.layout import GPT_MODEL

_FORWARD = "forward"
_TOKENS = ("input_ids", "tokens")
# What models of other libraries do not take.
_OF_MEGATRON = {"packed_seq_params", "decoder_input", "extra_block_kwargs", "runtime_gather_output", "loss_mask"}
_OF_MEGATRON |= {"inference_context", "inference_params", "padding_mask"}
_MODELS = ("model", "module", "policy", "actor", "chunk")


@dataclass(frozen=True)
class ModelCall:
    """A call that passes token ids to something which the file neither defines nor imports."""

    source: Source
    node: ast.Call
    says_megatron: bool

    @property
    def where(self) -> str:
        """The file and the line."""
        return f"{self.source.path}, line {self.node.lineno}"

    @property
    def keywords(self) -> set[str]:
        """What it passes by name."""
        return {one.arg for one in self.node.keywords if one.arg}

    @property
    def is_direct(self) -> bool:
        """`model.forward(...)`, where no hook runs."""
        return isinstance(self.node.func, ast.Attribute) and self.node.func.attr == _FORWARD

    def fits(self, expected: Parameters) -> bool:
        """Whether it passes what Megatron's forward asks for, and nothing else."""
        passed = {*expected.names[: len(self.node.args)], *self.keywords}
        spread = any(one.arg is None for one in self.node.keywords)
        return self.keywords <= {*expected.names} and (spread or expected.required <= passed)

    def may_be_patched(self, own: Collection[str]) -> bool:
        """Whether it passes what the copy alone takes, or calls a model by its name that may be Megatron's."""
        if self.keywords & {*own}:
            return True
        is_model = any(word in _called(self.node.func).lower() for word in _MODELS)
        return is_model and (self.says_megatron or bool(self.keywords & _OF_MEGATRON))


def model_calls(files: Workbench) -> list[ModelCall]:
    """The calls of all files."""
    sources = {source.path: source for word in _TOKENS for source in files.sources_saying(word)}
    return [
        ModelCall(source, node, b"megatron" in source.data)
        for source, own in ((source, _own(source)) for source in sources.values())
        for node in source.every(ast.Call)
        if _passes_tokens(node) and _is_foreign(node.func, own)
    ]


def misfit(patch: Patch, copy: ForwardCopy, own: Collection[str]) -> str:
    """Why a call would raise, or mean something else, without the copy; `own` are the parameters of the copy alone."""
    expected = called_with(f"{GPT_MODEL}.{_FORWARD}", patch.situation.options.target)
    if copy.method != _FORWARD or expected is None:
        return ""
    arguments = copy.function.args
    rest = arguments.kwarg.arg if arguments.kwarg else ""
    places = [one.arg for one in (*arguments.posonlyargs, *arguments.args)][1:]
    common = _common(places, expected.names)
    for call in patch.situation.once(model_calls):
        if call.is_direct and call.may_be_patched(own):
            return f"{call.where} calls `forward` itself, where no hook runs: call the model there, then migrate again"
        if len(call.node.args) > common < len(places):
            return f"{call.where} passes `{places[common]}` by position, where Megatron has another parameter"
        unknown = sorted(call.keywords - {*expected.names, *own}) if rest else []
        if unknown and call.may_be_patched(own):
            return (
                f"{call.where} passes `{unknown[0]}`, which only the copy takes, in its `**{rest}`: "
                "drop it there, then migrate again"
            )
    if common < len(places):
        instead = expected.names[common] if common < len(expected.names) else "nothing"
        copy.notes.append(f"pass `{places[common]}` by keyword: Megatron has `{instead}` in its place")
    return ""


def _common(places: Collection[str], expected: Collection[str]) -> int:
    """How many parameters have the place that they have in Megatron."""
    pairs = enumerate(zip(places, expected, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(places), len(expected)))


def _passes_tokens(node: ast.Call) -> bool:
    return any(_said(one) in _TOKENS for one in node.args[:1]) or any(one.arg == _TOKENS[0] for one in node.keywords)


def _said(node: ast.expr) -> object:
    """`input_ids` of `batch.input_ids` and of `batch["input_ids"]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return node.slice.value
    return leaf(node)


def _called(func: ast.expr) -> str:
    """The name of what is called: of `self.models[0].forward`, `models`."""
    while isinstance(func, ast.Subscript | ast.Call) or (isinstance(func, ast.Attribute) and func.attr == _FORWARD):
        func = func.func if isinstance(func, ast.Call) else func.value
    return leaf(func)


def _is_foreign(func: ast.expr, own: Collection[str]) -> bool:
    """Whether what is called may be a model: no function or class of the file, no part of a model."""
    if isinstance(func, ast.Attribute) and func.attr == _FORWARD:
        func = func.value
    if isinstance(func, ast.Call):
        return _called(func) != "super"
    return _called(func) not in {"", *CALLED, *METHODS, *own}


def _own(source: Source) -> set[str]:
    """The functions and classes that a file defines or imports, and Python's own."""
    names = {node.name for node in source.every(ast.FunctionDef)} | {node.name for node in source.every(ast.ClassDef)}
    return names | {alias.asname or alias.name for alias in source.every(ast.alias)} | {"self", *dir(builtins)}
