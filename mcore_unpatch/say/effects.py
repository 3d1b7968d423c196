"""What a release does, in words: one sentence for each kind, at most three lines for a finding, each cause once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mcore_unpatch.effects.records import Effect, Outcome, When
from mcore_unpatch.library.signatures import Misfit
from mcore_unpatch.say.names import counted, leaf, quoted, releases, short

MOST_LINES = 3
OK, RAISES, DIFFERS, NOT_REACHED, UNKNOWN = "ok", "RAISES", "differs", "-", "?"
# Kinds of which less than 97 % were seen to be true; `explain` says them, a report does not.
NOT_PRINTED = frozenset({Outcome.COUNT_UNKNOWN, Outcome.CLASS_ASKED})


def mark(effects: Sequence[Effect]) -> str:
    """What stands in a table for what one release does to a place."""
    kinds = {effect.kind for effect in effects}
    if any(effect.raises for effect in effects):
        return RAISES
    if kinds & {Outcome.UNREAD, *NOT_PRINTED} and not kinds - {Outcome.UNREAD, *NOT_PRINTED}:
        return UNKNOWN
    if any(effect.differs for effect in effects):
        return DIFFERS
    return NOT_REACHED if kinds & {Outcome.NEVER_RUNS, Outcome.NEVER_CALLED} else OK


def details(effects: Iterable[Effect]) -> list[str]:
    """The lines below a finding: the worst first, one for each cause, with the releases where they differ."""
    by_cause: dict[tuple[object, ...], Effect] = {}
    for effect in effects:
        if effect.kind in NOT_PRINTED or effect.kind == Outcome.NONE:
            continue
        key = (effect.kind, effect.cause, effect.exception)
        known = by_cause.get(key)
        both = (*known.releases, *effect.releases) if known is not None else effect.releases
        by_cause[key] = replace(effect, releases=tuple(dict.fromkeys(both)))
    found = sorted(by_cause.values(), key=lambda effect: (not effect.raises, not effect.differs))
    lines = [sentence(effect) for effect in found]
    if len(lines) > MOST_LINES:
        lines = [*lines[: MOST_LINES - 1], f"And {len(lines) - MOST_LINES + 1} more: unpatch explain."]
    return lines


def sentence(effect: Effect) -> str:
    """One effect as one sentence; what raises begins with its exception."""
    said = _SENTENCES[effect.kind](effect)
    return f"{effect.exception}: {said}" if effect.exception else said[:1].upper() + said[1:]


def trigger(effect: Effect) -> str:
    """When it happens."""
    words = {When.IMPORT: "when the file is imported", When.INSTALL: "when the patch is installed"}
    return words.get(effect.place.when, "when it is called")


# -- one sentence for each kind --------------------------------------------------------------------------------------


def _gone(effect: Effect) -> str:
    now = effect.cause.by
    where = f" It is now `{short(now)}`." if now and now != effect.cause.name else ""
    return f"`{short(effect.cause.name)}` is gone.{where}"


def _call_unfit(effect: Effect) -> str:
    misfit, names = Misfit(effect.cause.by), effect.cause.words
    return f"the call of `{short(effect.cause.name)}` {_MISFITS[misfit](names)}."


def _not_taken(effect: Effect) -> str:
    misfit, *names = effect.cause.words
    return f"`{short(effect.cause.by)}` {_MISFITS[Misfit(misfit)](tuple(names))}, and the replacement does not fit."


_MISFITS: dict[Misfit, Callable[[tuple[str, ...]], str]] = {
    Misfit.SURPLUS: lambda names: f"passes {counted(names[0], 'value')} by position where {names[1]} fit",
    Misfit.UNKNOWN: lambda names: f"passes {quoted(names)}",
    Misfit.TWICE: lambda names: f"passes {quoted(names)} twice",
    Misfit.MISSING: lambda names: f"does not pass {quoted(names)}",
}


def _unpacked(effect: Effect) -> str:
    *given, wanted = effect.cause.words
    if effect.cause.by:
        some = " or ".join(given)
        return f"the replacement returns {some} values where `{short(effect.cause.by)}` unpacks {wanted}."
    return f"unpacks {given[0]} values from `{short(effect.cause.name)}`, which gives {wanted}."


def _behind(effect: Effect) -> str:
    missing, stale = effect.cause.words
    lacks = f"lacks {counted(missing, 'statement')} of today's" if missing != "0" else ""
    keeps = f"keeps {counted(stale, 'statement')} that upstream took out" if stale != "0" and not lacks else ""
    return f"the copy of `{short(effect.cause.name)}` {lacks or keeps}."


def _dropped(effect: Effect) -> str:
    who = short(effect.cause.by)
    return f"`{who}` passes {quoted(effect.cause.words)} now, which the replacement takes in `**` and drops."


def _value_moved(effect: Effect) -> str:
    number, was, now = effect.cause.words
    place = f"value {int(number) + 1} of the call of `{short(effect.cause.name)}`"
    return f"{place} was `{was}` and means `{now}` now."


def _default_changed(effect: Effect) -> str:
    name, was, now = effect.cause.words
    return f"`{name}` of `{short(effect.cause.name)}`, which is not passed, is {now} by default and was {was}."


def _called_elsewhere(effect: Effect) -> str:
    name, by = short(effect.cause.name), effect.cause.by
    if by and leaf(by) == leaf(effect.cause.name):
        return f"`{name}` is only imported there now; `{short(by)}` is what is called."
    return f"`{short(by)}` calls `{name}` too." if by else f"nothing calls `{name}` by this name any more."


def _branch_turned(effect: Effect) -> str:
    came_out = "true" if effect.cause.words == ("True",) else "false"
    return f"the condition on line {effect.place.line} is {came_out} there, and was not: other code of yours runs."


def _stopped(effect: Effect) -> str:
    return f"nobody calls `{short(effect.cause.name)}` any more; `{short(effect.cause.by)}` did."


_SENTENCES: dict[Outcome, Callable[[Effect], str]] = {
    Outcome.MODULE_GONE: _gone,
    Outcome.IMPORT_GONE: _gone,
    Outcome.NAME_GONE: _gone,
    Outcome.CALL_UNFIT: _call_unfit,
    Outcome.NOT_TAKEN: _not_taken,
    Outcome.UNPACKED: _unpacked,
    Outcome.BEHIND: _behind,
    Outcome.BODY_CHANGED: lambda one: f"`{short(one.cause.name)}` changed, and the replacement never calls it.",
    Outcome.DROPPED: _dropped,
    Outcome.VALUE_MOVED: _value_moved,
    Outcome.DEFAULT_CHANGED: _default_changed,
    Outcome.CONSTANT_CHANGED: lambda one: f"`{short(one.cause.name)}` has another value.",
    Outcome.COUNT_UNKNOWN: lambda one: f"`{short(one.cause.name)}` changed, and may return another number of values.",
    Outcome.NEW: lambda one: f"the library has a `{short(one.cause.name)}` of its own there, which this replaces.",
    Outcome.CALLED_ELSEWHERE: _called_elsewhere,
    Outcome.CLASS_ASKED: lambda one: f"`{short(one.cause.by)}` asks for the class `{leaf(one.cause.name)}` itself.",
    Outcome.BRANCH_TURNED: _branch_turned,
    Outcome.STOPPED: _stopped,
    Outcome.UNREAD: lambda one: f"`{short(one.cause.name)}` changed; whether the replacement fits cannot be told.",
    Outcome.NEVER_RUNS: lambda one: f"never runs on {releases(one.releases)}.",
    Outcome.NEVER_CALLED: lambda one: f"nobody calls `{short(one.cause.name)}`.",
    Outcome.UPSTREAMED: lambda one: f"`{short(one.cause.name)}` does all that this copy does.",
    Outcome.NONE: lambda one: "runs as written.",
}
