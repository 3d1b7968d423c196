"""A copy where it is installed: `attach` in the place of the assignment, or the processor at the calls of the model."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.changes import Rewrite, above
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.copies.callers import misfit
from mcore_unpatch.codemods.seams.copies.calls import CALLER, calling
from mcore_unpatch.codemods.seams.copies.ending import Processor, as_processor
from mcore_unpatch.codemods.seams.copies.reading import Copy, read_copy
from mcore_unpatch.codemods.seams.copies.upstream import METHODS
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, is_taken
from mcore_unpatch.codemods.seams.undo import Undoing, plan_undoing
from mcore_unpatch.codemods.syntax import is_name
from mcore_unpatch.megatron.layout import GPT_MODEL

TARGETS = {f"{GPT_MODEL}.{method}" for method in METHODS}
_ATTACH = "attach"
_INFERENCE = "calls for inference keep Megatron's own path"
_PLAN = "a schedule plan does not run what is attached: pass it to `build_schedule_plan` where 1F1B overlap is used"


def to_processor(patch: Patch) -> Rewritten | str | None:
    """The rewrite, why there is none, or None where the patch is not a copy."""
    if patch.function is None or not patch.bound or _calls_original(patch):
        return None
    copy = read_copy(patch.function, patch.target.attr, patch.situation.options.target)
    if not isinstance(copy, Copy):
        return copy and Rewritten([], by_hand=f"Not rewritten: {copy}.")
    function, files = copy.function, patch.situation.files
    if because := _in_the_way(patch):
        return because
    limit = files.imports(patch.source.path).limit
    processor = as_processor(copy, patch.source, limit)
    if isinstance(processor, str):
        return processor
    if because := misfit(patch, copy, processor.travelling):
        return because
    if patch.finding.shape != "instance-attr":
        return _of_the_class(patch, copy, processor)
    undoing = plan_undoing(patch, [function], [patch.around]) if patch.around else Undoing()
    if isinstance(undoing, str):
        return undoing
    changes = [*processor.changes, *undoing.changes, *remove(patch.source, undoing.removed, with_comments=True)]
    call = _attach(patch, processor, undoing.handle, limit)
    if undoing.lift is None:
        changes.append(Rewrite(patch.statement, call, tell_checkers=False))
    else:
        changes += [above(patch.source, undoing.lift, call), *remove(patch.source, [patch.statement])]
    return Rewritten(changes, [_ATTACH], (*_notes(copy), _INFERENCE, *([_PLAN] if copy.method != "forward" else [])))


def _of_the_class(patch: Patch, copy: Copy, processor: Processor) -> Rewritten | str:
    """A patch of all models: their calls are given the processor."""
    if processor.bound:
        return f"`{copy.function.name}` asks for more of the model than the hook passes, and it patches the class"
    for related in patch.finding.related:
        return f"it patches the class, and line {related.line} keeps or restores the original"
    calls = calling(patch, processor.travelling)
    if isinstance(calls, str):
        return calls
    changes = [*processor.changes, *calls, *remove(patch.source, [patch.statement])]
    notes = [*_notes(copy), "only the calls that were found here get the processor; before, every GPTModel did"]
    if patch.around is not None and len(patch.around.body) <= 2:
        notes.append(f"`{patch.around.name}` installs nothing any more: delete it and its calls")
    return Rewritten(changes, [CALLER], notes)


def _notes(copy: Copy) -> Iterator[str]:
    of = f"a copy of the {copy.method} of {copy.release}" if copy.release else f"a `{copy.method}` of its own"
    yield f"{of}: what follows the decoder is now a processor"
    yield from dict.fromkeys(copy.notes)
    if copy.function.args.kwarg is not None and copy.method == "forward":
        yield f"unknown keywords raise again; the copy took them in `**{copy.function.args.kwarg.arg}`"


def _calls_original(patch: Patch) -> bool:
    """Whether the replacement calls what it replaces: then it is no copy."""
    lines = {related.line for related in patch.finding.related if related.role == "backup"}
    kept = [node for node in ast.walk(patch.source.tree) if isinstance(node, ast.Assign) and node.lineno in lines]
    names = {ast.unparse(target).rpartition(".")[2] for node in kept for target in node.targets}
    assert patch.function is not None
    inside = ast.walk(patch.function)
    return any(getattr(node, "id", getattr(node, "attr", None)) in names for node in inside if names)


def _in_the_way(patch: Patch) -> str:
    """Why the function or the assignment cannot be changed."""
    function = patch.function
    assert function is not None
    if function.decorator_list:
        return f"`{function.name}` is decorated"
    if function.body[0].lineno == function.lineno:
        return f"`{function.name}` is written on one line"
    if not patch.source.owns_lines(patch.statement):
        return f"line {patch.statement.lineno} holds more than one statement"
    if sum(is_name(node, function.name) for node in patch.source.nodes) != 1:
        return f"`{function.name}` is also used elsewhere"
    if patch.situation.files.named_elsewhere(function.name, patch.source.path):
        return f"`{function.name}` is named in other files"
    if is_taken(_ATTACH, patch.source.tree):
        return f"the name `{_ATTACH}` is taken"
    if patch.around is None and any(one.role in {"backup", "restore"} for one in patch.finding.related):
        return "it is undone outside of a function"
    return ""


def _attach(patch: Patch, processor: Processor, handle: str, limit: int) -> str:
    """What stands in the place of the assignment, laid out as a formatter would."""
    assert patch.function is not None
    value = patch.text(patch.statement.value) if processor.bound else patch.function.name
    pairs = [f'"{name}": "{key}"' for name, key in processor.travelling.items()]
    words = [patch.text(patch.target.value), value, *([f"legacy={{{', '.join(pairs)}}}"] if pairs else [])]
    start = f"{handle} = {_ATTACH}(" if handle else f"{_ATTACH}("
    line, indent = ", ".join(words), len(patch.source.indentation(patch.statement))
    if indent + len(f"{start}{line})") <= limit:
        return f"{start}{line})"
    if indent + 4 + len(line) <= limit:
        return f"{start}\n    {line}\n)"
    if indent + 5 + len(words[-1]) > limit and pairs:
        words[-1] = "\n    ".join(["legacy={", *(f"    {pair}," for pair in pairs), "}"])
    return "\n".join([start, *(f"    {word}," for word in words), ")"])


def steps(patch: Patch) -> str:
    """What to do by hand, line by line."""
    function = patch.function
    assert function is not None
    undone = ", ".join(str(one.line) for one in patch.finding.related if one.role in {"backup", "restore"})
    also = f", and what keeps and restores the original (line {undone})" if undone else ""
    return (
        f"1. Make what follows the decoder in `{function.name}` (line {function.lineno}) a function "
        "`(*, hidden_states, output_layer, output_weight, labels, context, config, **_)`; drop what comes before it.\n"
        f"2. Replace line {patch.statement.lineno} by `attach(model, the_function)` of `mcore_unpatch.compat`, or pass "
        f"it as `output_processor=` where the model is called{also}.\n"
        "3. Parameters that Megatron has not go into `output_processor_context={...}`, or `attach(..., legacy={...})` "
        "where callers cannot change."
    )
