"""Why a patch stays: what Megatron does with the name that it changes, how often it changed, and what guards it.

Each sentence follows from the wheels (`megatron/uses.py`), none from what a patch may be for.
"""

from __future__ import annotations

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron import api, slots, uses
from mcore_unpatch.megatron.layout import EXTERNAL_METHODS, LANGUAGE_MODULE
from mcore_unpatch.megatron.roots import PACKAGES, within
from mcore_unpatch.megatron.uses import Known, Use
from mcore_unpatch.megatron.versions import Version, show


def why(finding: Finding, version: Version) -> str:
    """What stands in the way of another way on a release: one sentence without its full stop."""
    target = finding.target
    owner, _, name = target.rpartition(".")
    holder = api.lookup(owner)
    if finding.confidence == "possible":
        return "Which class it changes is not known, so nothing can be named in its place"
    line = _line(target)
    if line is None or not line.is_on(version):
        return _of_missing(finding, line, version)
    if holder is None or holder.kind == "module":
        symbol = api.lookup(target)
        if symbol is not None and symbol.kind == "module":
            return "It stands for a whole module: what it changes there is not known"
        return _of_module(line.on(version), symbol is not None and symbol.kind == "class", version)
    return _of_class(holder.name, name, line.on(version), version)


def history(target: str) -> str:
    """In which releases a name changed, as far as it has a body; else nothing."""
    line = _line(target)
    letters = line.letters if line is not None else ""
    minors = [show(minor) for minor in uses.minors()]
    there = [index for index, letter in enumerate(letters) if letter != uses.ABSENT]
    if not there or uses.BODILESS in letters:
        return ""
    changed = [minors[index] for index in there if letters[index] == uses.CHANGED]
    if not changed:
        since = minors[there[0]]
        came = "it came in " if there[0] else ""
        return f"New in {since}" if there[0] == len(minors) - 1 else f"Unchanged since {came}{since}"
    if len(changed) < 3:
        return f"Changed in {' and '.join(changed)}"
    return f"Changed in {len(changed)} of {len(there) - 1} releases, last in {changed[-1]}"


def guard(target: str, version: Version) -> str:
    """What `unpatch pin` tells of a name; nothing where it cannot pin it."""
    line = _line(target)
    if line is None or not line.is_on(version):
        return ""
    if uses.BODILESS in line.letters:
        return "`unpatch pin` tells when it is gone"
    again = " again" if uses.CHANGED in line.letters else ""
    return f"`unpatch pin` tells when it changes{again}"


def outlook(target: str, version: Version) -> str:
    """How often it changed and what guards it, as a sentence."""
    tells = guard(target, version)
    return f"{'; '.join(filter(None, [history(target), tells]))}." if tells else "`unpatch pin` cannot guard it."


def _line(target: str) -> Known | None:
    """What is known of a name; of a method that a class inherits, what is known of the base's."""
    owner, _, name = target.rpartition(".")
    holder = api.lookup(owner)
    places = [target]
    if holder is not None and holder.kind == "class":
        places += [f"{one}.{name}" for one in api.ancestry(holder.name)]
    elif holder is not None:
        places.append(f"{holder.name}.{name}")
    return next(filter(None, map(uses.known, places)), None)


def _of_missing(finding: Finding, line: Known | None, version: Version) -> str:
    """What Megatron does not define on a release: it was there once, a base class outside has it, or nobody does."""
    owner, _, name = finding.target.rpartition(".")
    holder = api.lookup(owner)
    if finding.shape == "sys-modules" and owner in PACKAGES:
        return f"It is put into each loaded module that has `{name}`, and those call it by name"
    adds = "the patch adds it" + (", and this repository reads it" if finding.is_read else "")
    on = f"megatron-core {show(version)}"
    if holder is None or holder.kind not in ("class", "module"):
        return f"{on} has no such name: what it changes is not known"
    if line is not None and (there := [minor for minor in uses.minors() if line.is_on(minor)]):
        others = f"up to {show(there[-1])}" if there[0] < version else f"from {show(there[0])} on"
        return f"{on} has no `{name}` in `{_leaf(owner)}`, only Megatron {others}: {adds}"
    outside = [base for base in api.ancestry(holder.name) if not within(base)] if holder.kind == "class" else []
    if holder.kind == "class" and api.has_callable(holder.name, name):
        base = outside[0] if outside else "object"
        return f"`{_leaf(owner)}` inherits `{name}` from `{base}`: only the code that builds one can use a subclass"
    if any(_leaf(base) not in EXTERNAL_METHODS for base in outside):
        return f"`{_leaf(owner)}` has `{name}` from outside of Megatron, if at all: `{outside[0]}` is a base of it"
    return f"{on} has no `{name}` in `{_leaf(owner)}`: {adds}"


def _of_module(use: Use, is_class: bool, version: Version) -> str:
    """A name of a module: those who use it find it there."""
    if use.is_unread:
        return f"Nothing of megatron-core {show(version)} reads it; other packages may"
    if not use.hows:
        return "Megatron imports it from there by name: no argument or config field for another is known"
    match use.hows[0]:
        case uses.NAMED:
            return f"{_who(use, 'names')} it in a ModuleSpec: another can be named where the ModuleSpec is yours"
        case uses.DEFAULT:
            return f"{_who(use, 'takes')} it by default: another can be handed in only where you call that yourself"
        case uses.CALLED:
            return f"{_who(use, 'builds' if is_class else 'calls')} it by name, so no other can be handed in there"
    return f"{_who(use, 'uses')} it by name: no argument or config field for another is known"


def _of_class(owner: str, name: str, use: Use, version: Version) -> str:
    """A method or an attribute: what counts is who builds the object."""
    short = _leaf(owner)
    if use.source:
        return f"`{short}.{use.place}` {_MAKING[use.source].format(name)}"
    if not api.has_callable(owner, name):
        return f"`{name}` is a field of `{short}`: it can be set where one is built, not later"
    if LANGUAGE_MODULE in api.ancestry(owner):
        return f"It is a method of the model itself: only the code that builds `{short}` can use a subclass"
    line = uses.known(owner)
    built = line.on(version) if line is not None else Use()
    where = "; a subclass helps only where a ModuleSpec names it" if slots.named(owner) else ""
    match built.hows[:1]:
        case uses.CALLED | uses.DERIVED as how:
            what = f"`{short}`" if how == uses.CALLED else f"subclasses of `{short}`"
            return f"{_who(built, 'builds')} {what} by name{where or ', so no other can be handed in there'}"
        case uses.USED | uses.DEFAULT if not where:
            return f"{_who(built, 'uses')} `{short}` by name: no argument or config field for a subclass is known"
    if where:
        return f"Megatron does not build `{short}` by name{where}"
    return f"Megatron does not build `{short}` by name; only the code that builds it can use a subclass"


_MAKING = {
    uses.SPEC: "builds `{}` from a ModuleSpec, which takes a class, not a built module",
    uses.ARGUMENT: "takes `{}` as an argument: another can be passed where one is built, not later",
    uses.BUILT: "builds `{}` by name, so no other can be handed in",
    uses.MADE: "makes `{}` itself, so no other can be handed in",
}


def _who(use: Use, verb: str) -> str:
    """Who does something: one place, and in how many more modules it is done."""
    module, _, function = use.place.partition(".")
    place = function if module == function else use.place
    if use.modules < 2:
        return f"`{place}` {verb}"
    more = f"{use.modules - 1} more modules" if use.modules > 2 else "another module"
    return f"`{place}` and {more} {verb.removesuffix('s')}"


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]
