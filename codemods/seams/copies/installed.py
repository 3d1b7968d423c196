"""A copy where it is installed: `attach` in the place of the assignment."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.changes import Rewrite, above
from mcore_unpatch.codemods.codemod import Elsewhere
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.copies.behind import (
    InstalledCopy,
    all_installed,
    bound_function,
    installed,
    used_by_others,
)
from mcore_unpatch.codemods.seams.copies.callers import misfit
from mcore_unpatch.codemods.seams.copies.ending import ProcessorChanges, as_processor
from mcore_unpatch.codemods.seams.copies.reading import ForwardCopy, read_copy
from mcore_unpatch.codemods.seams.copies.upstream import METHODS
from mcore_unpatch.codemods.seams.patch import Patch, Rewritten, is_taken
from mcore_unpatch.codemods.seams.undo import Undoing, plan_undoing
from mcore_unpatch.codemods.syntax import leaf
from mcore_unpatch.megatron.layout import GPT_MODEL

TARGETS = {f"{GPT_MODEL}.{method}" for method in METHODS}
_ATTACH = "attach"
_INFERENCE = "calls for inference keep Megatron's own path"
_PLAN = "a schedule plan does not run what is attached: pass it to `build_schedule_plan` where 1F1B overlap is used"


def to_processor(patch: Patch) -> Rewritten | str | None:
    """The rewrite, why there is none, or None where the patch is not a copy."""
    one = installed(patch)
    if one is None or _calls_original(one.patch):
        return None
    copy = read_copy(one.function, patch.target.attr, patch.situation.options.target)
    if not isinstance(copy, ForwardCopy):
        return copy and Rewritten([], by_hand=f"Not rewritten: {copy}.")
    if because := _in_the_way(one):
        return because
    processor = as_processor(copy, one.home, patch.situation.files.imports(one.home.path).limit)
    if isinstance(processor, str):
        return processor
    if because := misfit(patch, copy, processor.travelling):
        return because
    places = all_installed(one)
    if because := used_by_others(one, places):
        return because
    for other in (place for place in places if place.patch.finding != patch.finding):
        line = f"{other.patch.source.path}, line {other.patch.statement.lineno}"
        if other.patch.finding.target != patch.finding.target:
            return f"{line} installs `{one.function.name}` as another method"
        if isinstance(also := _attached(other, copy, processor), str):
            return f"{line} installs `{one.function.name}` too, and cannot be rewritten: {also}"
    return _attached(one, copy, processor, apart=len(places) > 1)


def _attached(
    one: InstalledCopy, copy: ForwardCopy, processor: ProcessorChanges, *, apart: bool = True
) -> Rewritten | str:
    """One patch with `attach` in its place; changes of the function are `apart` where others ask for them too."""
    patch = one.patch
    if because := _cannot_change(patch):
        return because
    if patch.finding.shape != "instance-attr":
        return "it patches the class: which calls need the processor is not known"
    undoing = plan_undoing(patch, [one.function], [patch.around]) if patch.around else Undoing()
    if isinstance(undoing, str):
        return undoing
    changes = [*undoing.changes, *remove(patch.source, undoing.removed, with_comments=True)]
    call = _attach(patch, processor, undoing.handle, patch.situation.files.imports(patch.source.path).limit)
    if undoing.lift is None:
        changes.append(Rewrite(patch.statement, call, tell_checkers=False))
    else:
        changes += [above(patch.source, undoing.lift, call), *remove(patch.source, [patch.statement])]
    notes = (*_notes(copy), _INFERENCE, *([_PLAN] if copy.method != "forward" else []))
    if one.is_here and not apart:
        return Rewritten([*processor.changes, *changes], [_ATTACH], notes)
    there = [Elsewhere(one.home, change) for change in processor.changes]
    return Rewritten(changes, [_ATTACH], notes, elsewhere=there)


def _notes(copy: ForwardCopy) -> Iterator[str]:
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


def _in_the_way(one: InstalledCopy) -> str:
    """Why the function cannot be changed."""
    if one.function.decorator_list:
        return f"`{one.function.name}` is decorated"
    if one.function.body[0].lineno == one.function.lineno:
        return f"`{one.function.name}` is written on one line"
    return ""


def _cannot_change(patch: Patch) -> str:
    """Why the assignment cannot be changed."""
    if not patch.source.owns_lines(patch.statement):
        return f"line {patch.statement.lineno} holds more than one statement"
    if is_taken(_ATTACH, patch.source):
        return f"the name `{_ATTACH}` is taken"
    if patch.around is None and any(one.role in {"backup", "restore"} for one in patch.finding.related):
        return "it is undone outside of a function"
    return ""


def _attach(patch: Patch, processor: ProcessorChanges, handle: str, limit: int) -> str:
    """What stands in the place of the assignment, laid out as a formatter would."""
    function = patch.text(bound_function(patch))
    value = function
    if processor.bound:
        bound = leaf(getattr(patch.statement.value, "func", None)) != "partial"
        value = patch.text(patch.statement.value) if bound else f"{function}.__get__({patch.text(patch.target.value)})"
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


def _where(one: InstalledCopy) -> str:
    return f"line {one.function.lineno}" if one.is_here else f"{one.home.path}, line {one.function.lineno}"


def steps(patch: Patch) -> str:
    """What to do by hand, line by line."""
    one = installed(patch)
    assert one is not None
    function = one.function
    undone = ", ".join(str(one.line) for one in patch.finding.related if one.role in {"backup", "restore"})
    also = f", and what keeps and restores the original (line {undone})" if undone else ""
    return (
        f"1. Make what follows the decoder in `{function.name}` ({_where(one)}) a function "
        "`(*, hidden_states, output_layer, output_weight, labels, context, config, **_)`; drop what comes before it.\n"
        f"2. Replace line {patch.statement.lineno} by `attach(model, the_function)` of `mcore_unpatch.compat`, or pass "
        f"it as `output_processor=` where the model is called{also}.\n"
        "3. Parameters that Megatron does not have go into `output_processor_context={...}`, or `attach(..., "
        "legacy={...})` where callers cannot change."
    )
