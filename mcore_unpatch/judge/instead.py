"""Where a name that a release lacks is now, or what took its place: the words of what to write instead."""

from __future__ import annotations

from mcore_unpatch.library.model import Known, Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, minor, parse_version, show


def unfit(wrong: str, who: str) -> str:
    """What `misfit` says of a call, with who is called."""
    return f"{wrong}, which {who} {'requires' if wrong.startswith('does not pass') else 'does not take'}"


def nth(index: int) -> str:
    """The place of a value, counted from 0, as a word."""
    words = ("first", "second", "third", "fourth", "fifth", "sixth")
    number = index + 1
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 not in (11, 12, 13) else "th"
    return words[index] if index < len(words) else f"{number}{ending}"


def leaf(name: str) -> str:
    """The last part of a name."""
    return name.rpartition(".")[2]


def short(name: str) -> str:
    """`Class.method`, or `module.function`."""
    return ".".join(name.split(".")[-2:])


def nowhere(name: str) -> str:
    """Of a name that no release has."""
    first = show(minor(parse_version(RELEASES[0])))
    return f"`{short(name)}` is in no release of megatron-core since {first}; a fork may have it"


def absent(name: str, model: Model) -> str:
    """Since when a release lacks a name, or which is the next to have it; nothing where none has it."""
    here = RELEASES.index(model.label) if model.label in RELEASES else len(RELEASES)
    if (last := known.last(name)) is None:
        return ""
    if RELEASES.index(last) < here:
        return f"after megatron-core {last}"
    first = next(release for release in RELEASES[here:] if known.has(name, release))
    return f"before megatron-core {first}" if first != model.label else f"in this source of megatron-core {first}"


def _was(name: str, old: Model | None) -> tuple[Known, Model] | None:
    """What a name was in an older release: the one given, or the last that had it."""
    last = known.last(name)
    before = old if old is not None else known.model(last) if last is not None else None
    found = before.find(name) if before is not None else None
    return (found, before) if found is not None and before is not None else None


def instead(name: str, model: Model, old: Model | None = None) -> str | None:
    """Where the name is now, by what it was in an older release; else what took its place there."""
    if (was := _was(name, old)) is None:
        # No wheel holds the older one: what the package had is told by the name of its module as well.
        alike = [model.find(one) for one in model.ending(leaf(name)) if short(one) == short(name)]
        only = alike[0] if len(alike) == 1 and known.lacking(known.model(RELEASES[0]), name) else None
        return only.name if only is not None else None  # where it is defined, not where it is imported
    found, before = was
    if found.fact.kind == "import":  # of another package
        return found.fact.detail
    if model.find(found.name) is not None:
        return found.name  # only a re-export is gone
    now = model.moved(found.name, found.fact, before)
    if now is not None and leaf(now) == leaf(name):
        return now
    # The body that is most alike may have become a helper of what took its place.
    return _named_by_text(found, model) or _called_instead(found, model, before) or now or _made_public(found, model)


def _named_by_text(found: Known, model: Model) -> str | None:
    """What the text of a function, a class or a field said to use in its place, where the release has it."""
    said, owner = found.fact.trait("says"), found.name.rpartition(".")[0]
    around = (f"{place}.{said}" for place in (owner, owner.rpartition(".")[0])) if said else ()
    return next((known.name for place in around if (known := model.find(place)) and known.name != found.name), None)


def _called_instead(found: Known, model: Model, before: Model) -> str | None:
    """The new function beside it that most of those call now who called it."""
    owner = found.name.rpartition(".")[0]
    if found.fact.kind != "function":
        return None
    callers = {usage.place for usage in before.calls(found.name)}
    fresh = [f"{owner}.{other}" for other, fact in model.members(owner) if fact.kind == "function"]
    fresh = [other for other in fresh if before.find(other) is None]
    score = {other: len(callers & {usage.place for usage in model.calls(other)}) for other in fresh}
    best = [other for other, number in score.items() if number and number == max(score.values())]
    return best[0] if len(best) == 1 else None


def _made_public(found: Known, model: Model) -> str | None:
    """The one function with the same parameters whose name has an underscore more at its beginning, or none."""
    own, names = leaf(found.name), found.fact.parameters.names if found.fact.kind == "function" else ()
    likely = {f"_{own}", own.lstrip("_")} - {own} if names else set()
    others = [other for public in sorted(likely) for other in model.ending(public) if other in model.facts]
    same = [
        other for other in others if (fact := model.facts[other]).kind == "function" and fact.parameters.names == names
    ]
    return same[0] if len(same) == 1 else None


def made_by(name: str, model: Model, old: Model | None) -> str:
    """Of an object that is gone the class that it was of, where the release still has that."""
    was = _was(name, old)
    made = was[0].fact.trait("made") if was is not None else None
    cls = model.find(made) if made else None
    return f"it was one of `{cls.name}`: make your own, and keep it" if cls is not None else ""


def advice(name: str, now: str | None, when: str = "") -> str:
    """What to write in place of a name, as a sentence; one with another name is only much alike.

    when: since when a release lacks it, as `absent` says.
    """
    if now is None:
        return ""
    if leaf(now) != leaf(name):
        return f"`{short(now)}` is the closest match"
    is_method, was_one = (leaf(each.rpartition(".")[0])[:1].isupper() for each in (now, name))
    if when.startswith("before"):
        return f"there it is `{now}`"
    return f"it is a method now: `{short(now)}`" if is_method and not was_one else f"it is now `{now}`"
