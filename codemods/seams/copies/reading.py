"""A copy of a forward, read statement by statement: what is Megatron's, and where its own end begins."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from mcore_unpatch.codemods.seams.copies.upstream import (
    CALLED,
    METHODS,
    UpstreamBody,
    bodies,
    calls_of,
    digest,
    known,
    of_model,
    of_release,
    part_called,
)
from mcore_unpatch.codemods.seams.copies.waiting import may_wait
from mcore_unpatch.codemods.source import Function
from mcore_unpatch.megatron.known import called_with
from mcore_unpatch.megatron.layout import GPT_MODEL
from mcore_unpatch.megatron.versions import Version

_FORWARD, _POSTPROCESS = METHODS
_MTP = {"process_mtp_loss", "MTPLossAutoScaler", "MTPLossLoggingHelper", "roll_tensor"}
_IN_POSTPROCESS = "mtp_in_postprocess"
_ON_MTP = {_IN_POSTPROCESS, "{}.mtp_process", "{}.config.mtp_num_layers", "{}.config.mtp_num_layers is not None"}
_OF_THE_MODEL = {"embedding", "output_layer", "compute_language_model_loss"}
_WITH_LABELS = "labels is not None"
_ALSO_WITHOUT_LABELS = "from 0.19 on, Megatron trains MTP also without labels, from `input_ids`"
# False wherever a processor runs: calls for inference keep Megatron's own path.
_INFERENCE = {"in_inference_mode", "is_spec_decode", "sequence_parallel_override", "inference_context is not None"}
_INFERENCE |= {"inference_context"}
_ANOTHER = "output_processor is not None"


@dataclass
class ForwardCopy:
    """What of a copy goes, because Megatron does it, and what is its own."""

    function: Function
    method: str
    model: str  # what the function calls the model
    hidden: str = "hidden_states"  # and the output of the decoder
    release: str = ""  # whose body it is
    dropped: list[ast.stmt] = field(default_factory=list)
    end: list[ast.stmt] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def says(self, statement: ast.AST) -> str:
        """A statement or expression as Megatron would write it."""
        return re.sub(rf"\b{self.model}\.", "self.", ast.unparse(statement))


def read_copy(function: Function, method: str, target: Version) -> ForwardCopy | str | None:
    """The copy, why it is not known to be one, or None if it is nothing of the kind."""
    arguments = [*function.args.posonlyargs, *function.args.args]
    if method not in METHODS or not arguments or function.args.vararg or isinstance(function, ast.AsyncFunctionDef):
        return None
    copy = ForwardCopy(function, method, arguments[0].arg)
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if method == _FORWARD:
        at = next((index for index, one in enumerate(body) if calls_of(one, "decoder", copy.model)), None)
        if at is None:
            return None
        if because := _read_decoder(copy, body[: at + 1], target):
            return because
        body = body[at + 1 :]
    elif not any(name in {"output_layer", "mtp"} for one in body for name in of_model(one, copy.model)):
        return None
    return _read_end(copy, body, target) or copy


def _read_decoder(copy: ForwardCopy, body: Sequence[ast.stmt], target: Version) -> str:
    """Whether everything up to the decoder's output is what Megatron does there; why not."""
    digests = [digest(one, copy.model) for one in body]
    versions = bodies(_FORWARD)
    nearest = max(versions, key=lambda one: _likeness(one, digests))
    if any(each in nearest.before for each in digests):
        same = [release for one in versions if one.before == nearest.before for release in one.releases]
        copy.release = " to ".join(dict.fromkeys((same[0], same[-1])))
    place = -1
    inputs = {"decoder_input"}
    for statement, each in zip(body, digests, strict=True):
        if each in nearest.before[place + 1 :]:
            place = nearest.before.index(each, place + 1)
        elif not _is_lean(copy, statement, inputs):
            copy.end.append(statement)
            continue
        copy.dropped.append(statement)
    if because := _wait(copy):
        return because
    output = body[-1]
    if not isinstance(output, ast.Assign) or not isinstance(output.targets[0], ast.Name):
        return f"line {output.lineno} does not keep the decoder's output in a variable"
    copy.hidden = output.targets[0].id
    copy.notes += _gets_back(copy, body, of_release(_FORWARD, target), target)
    return ""


def _likeness(version: UpstreamBody, digests: Sequence[str]) -> tuple[int, int, tuple[str, ...]]:
    """The most statements of the copy, then the fewest that it lacks."""
    return sum(each in version.before for each in digests), -len(version.before), version.releases


def _wait(copy: ForwardCopy) -> str:
    """Look at what stands before statements of Megatron's, and will run behind them; why it cannot."""
    for statement in copy.end:
        later = any(one.lineno > statement.lineno and not _is_idle(one) for one in copy.dropped)
        if isinstance(statement, ast.Import | ast.ImportFrom) or not (later or calls_of(statement, "decoder")):
            continue
        said = f"line {statement.lineno}, `{ast.unparse(statement).splitlines()[0]}`,"
        if not may_wait(statement, copy.dropped):
            return (
                f"{said} runs before the decoder's output and is not in any release's forward; the hook runs later. "
                "What changes the decoder's input can be a forward pre-hook of `model.decoder`: take that line out, "
                "then migrate again"
            )
        copy.notes.append(f"{said} runs behind the decoder now, and on the last pipeline stage alone")
    return ""


def _is_lean(copy: ForwardCopy, statement: ast.stmt, inputs: set[str]) -> bool:
    """Megatron's call of a part of the model with some of its arguments; `inputs` are names of embeddings."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    if not _is_lean_call(copy, statement.value, inputs):
        return False
    if part_called(statement.value, copy.model) == "embedding":
        inputs.update(node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name))
    return True


def _is_lean_call(copy: ForwardCopy, node: ast.expr, inputs: set[str]) -> bool:
    part = part_called(node, copy.model)
    if part not in CALLED or not isinstance(node, ast.Call):
        return False
    passed = {keyword for method in METHODS for one in bodies(method) for keyword in one.passed[part]}
    if part == "embedding":
        passed = {"input_ids", "position_ids"}
        if [ast.unparse(one) for one in node.args] != ["input_ids", "position_ids"][: len(node.args)]:
            return False
    elif node.args:
        return False
    return all(_is_passed(copy, keyword, part, passed, inputs) for keyword in node.keywords)


def _is_passed(copy: ForwardCopy, keyword: ast.keyword, part: str, passed: set[str], inputs: set[str]) -> bool:
    value = copy.says(keyword.value)
    if keyword.arg is None:
        rest = copy.function.args.kwarg
        if rest is not None and value == rest.arg:
            copy.notes.append(f"`**{value}` went to `{part}`: pass `extra_block_kwargs={{...}}` for that now")
            return True
        return value == "extra_block_kwargs or {}"
    if keyword.arg == "hidden_states" and part == "decoder":
        return value in inputs or _is_lean_call(copy, keyword.value, inputs)
    own = {keyword.arg, "None", *([copy.hidden] if keyword.arg == "hidden_states" else [])}
    own |= {f"self.{keyword.arg}"} if keyword.arg in _OF_THE_MODEL else set()
    return keyword.arg in passed and value in own


def _gets_back(copy: ForwardCopy, body: Sequence[ast.stmt], now: UpstreamBody, target: Version) -> Iterator[str]:
    """What Megatron does before the decoder's output, and the copy does not."""
    release = ".".join(map(str, target))
    expected = called_with(f"{GPT_MODEL}.{_FORWARD}", target)
    arguments = copy.function.args
    has = {one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
    lacks = [one for one in expected.names if one not in has] if expected else []
    lacks = [one for one in lacks if not one.startswith("output_processor")]
    if lacks:
        yield f"the model takes {_listed(lacks)} again, which the copy had not"
    words = [word for one in body for call in calls_of(one, "decoder", copy.model) for word in call.keywords]
    passed = {word.arg for word in words if ast.unparse(word.value) != "None"}
    missing = [one for one in now.passed["decoder"] if one not in passed]
    if missing:
        yield f"the decoder gets {_listed(missing)} again, as in {release}"
    called = {name for one in body for name in of_model(one, copy.model)}
    called |= {"_preprocess"} if "rotary_pos_emb" in called else set()
    if lost := [one for one in now.calls if one not in called]:
        yield f"the forward of {release} also runs {_listed(lost)}, which the copy did not"


def _read_end(copy: ForwardCopy, body: Sequence[ast.stmt], target: Version) -> str:
    """Divide what follows the decoder; why that cannot be."""
    begun = False
    for statement in body:
        early = not begun and (_is_known(copy, statement, "hook") or _is_early(copy, statement))
        if early or (_is_known(copy, statement, "end") and _is_idle(statement)):
            copy.dropped.append(statement)
        else:
            begun = begun or not may_wait(statement, copy.dropped)
            copy.end.append(statement)
    if because := _wait(copy):
        return because
    own = [one for one in copy.end if body and one.lineno >= body[0].lineno]
    if not own:
        return "what follows the decoder is Megatron's own; delete the patch"
    for node in (node for one in copy.end for node in ast.walk(one)):
        name = part_called(node, copy.model) or getattr(node, "id", "")
        if name in {"mtp", *_MTP}:
            return (
                f"line {_line(node)} has MTP code of its own (`{name}`), and Megatron has done it before the hook. "
                "Where Megatron's own MTP loss serves, delete these lines and migrate again; else the patch has to stay"
            )
        if name in {_POSTPROCESS, _FORWARD, "decoder", "_preprocess"}:
            return f"line {_line(node)} calls `{name}`, which a processor cannot; it is not the end alone that differs"
        if isinstance(node, ast.Attribute) and node.attr in {"post_process", "pre_process", "mtp_process"}:
            if node.attr == "post_process" and node in ast.walk(own[0]):
                leaving = f"`if not {copy.model}.post_process: return {copy.hidden}`"
                return f"line {node.lineno} asks for `post_process`: write {leaving} before it, then migrate again"
            return (
                f"line {node.lineno} asks for `{node.attr}` behind code of its own, which ran on every pipeline stage; "
                "a processor runs on the last alone. Move what is for the last behind that line, then migrate again"
            )
        if isinstance(node, ast.Yield | ast.YieldFrom | ast.Await | ast.Nonlocal | ast.Global):
            return f"line {_line(node)} cannot be part of a processor"
    called = {name for one in (*copy.dropped, *copy.end) for name in of_model(one, copy.model)}
    if "mtp" not in called:
        copy.notes.append("with MTP layers, Megatron runs them and adds their loss; the copy left them out")
    if "output_layer" in called and not _scales(copy):
        copy.notes.append("MuP: the logits of the processor are not scaled, as those of the copy were not")
    return ""


def _scales(copy: ForwardCopy) -> bool:
    nodes = (node for one in copy.end for node in ast.walk(one))
    return any(isinstance(node, ast.Attribute) and node.attr == "_scale_logits" for node in nodes)


def _is_known(copy: ForwardCopy, statement: ast.stmt, place: str) -> bool:
    """Whether it is a statement of some release; the condition of MTP may also be that of labels."""
    if digest(statement, copy.model) in known(place):
        return True
    if not isinstance(statement, ast.If) or not statement.body:
        return False
    conditions = [one for one in _conjuncts(statement.test) if ast.unparse(one) != _WITH_LABELS]
    for spelling in (_IN_POSTPROCESS, f"{copy.model}.mtp_process"):
        tests = [ast.unparse(one).replace(f"{copy.model}.mtp_process", spelling) for one in conditions]
        test = ast.parse(" and ".join(f"({one})" for one in tests) or "True", mode="eval").body
        whole = ast.If(test, statement.body, statement.orelse)
        if digest(whole, copy.model) in known(place):
            if len(conditions) < len(_conjuncts(statement.test)):
                copy.notes.append(_ALSO_WITHOUT_LABELS)
            return True
    return False


def _is_early(copy: ForwardCopy, statement: ast.stmt) -> bool:
    """What Megatron does before the hook, in other words: the return of other stages, or MTP without its loss."""
    if copy.says(statement) == f"{_IN_POSTPROCESS} = self.mtp_process":
        return True
    if not isinstance(statement, ast.If) or statement.orelse:
        return False
    if copy.says(statement.test) == "not self.post_process":
        return len(statement.body) == 1 and ast.unparse(statement.body[0]) == f"return {copy.hidden}"
    conditions = {copy.says(one) for one in _conjuncts(statement.test)}
    if not conditions & {one.format("self") for one in _ON_MTP}:
        return False
    if conditions - {one.format("self") for one in _ON_MTP} - {_WITH_LABELS}:
        return False
    first, *rest = statement.body
    split = {f"{copy.hidden} = {text}" for text in _splits(copy.hidden)}
    if not (_is_lean(copy, first, set()) and calls_of(first, "mtp", copy.model)):
        return False
    if any(copy.says(one) not in split for one in rest) or ast.unparse(first.targets[0]) != copy.hidden:  # type: ignore[attr-defined]
        return False
    copy.notes.append("Megatron runs MTP and adds its loss, which the copy did not")
    if not rest:
        copy.notes.append("the result has the main positions alone; the copy had those of the MTP depths behind them")
    if _WITH_LABELS in conditions:
        copy.notes.append(_ALSO_WITHOUT_LABELS)
    return True


def _splits(hidden: str) -> Iterator[str]:
    for number in ("1 + self.config.mtp_num_layers", "self.config.mtp_num_layers + 1"):
        for dim in ("", ", 0", ", dim=0"):
            yield f"torch.chunk({hidden}, {number}{dim})[0]"
            yield f"{hidden}.chunk({number}{dim})[0]"


def _is_idle(statement: ast.stmt) -> bool:
    """Whether a statement does nothing where a processor runs: it is for inference, or calls another processor."""
    if isinstance(statement, ast.If) and not statement.orelse:
        return any(ast.unparse(one) in {*_INFERENCE, _ANOTHER} for one in _conjuncts(statement.test))
    return isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "sequence_parallel_override"


def _conjuncts(test: ast.expr) -> list[ast.expr]:
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
