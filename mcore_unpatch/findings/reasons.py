"""Why a patch stays: what Megatron does with the name that it changes, how often it changed, and what guards it.

Each sentence follows from the model of the release, none from what a patch may be for.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from itertools import accumulate, chain, pairwise

from mcore_unpatch.findings.builders import (
    MADE,
    NO_OTHER,
    ahead,
    leaf,
    minor_of,
    no_other,
    of_class,
    out_of_reach,
    telling,
    who_builds,
)
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import Known, Model, Usage
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.known import module_of, told_apart, who
from mcore_unpatch.megatron.layout import COMPILED, EXTERNAL_METHODS, LANGUAGE_MODULE
from mcore_unpatch.megatron.versions import (
    PACKAGES,
    TRAINING,
    TRAINING_SINCE,
    Version,
    minor,
    parse_version,
    show,
    within,
)

_CHECKOUT = "`unpatch pin --target-mcore PATH` guards it, with a checkout of what you run"
_COMES = "`unpatch pin` tells when Megatron has it"
_INHERITED = "`unpatch pin` tells when the class defines its own"
_KNOWN_BASES = (*EXTERNAL_METHODS, "ABC", "Generic", "Protocol", "object")  # whose methods are known


def why(finding: Finding, version: Version, beside: Set[str] = frozenset()) -> str:
    """What stands in the way of another way on a release: one sentence without its full stop.

    `beside` are the names that its file replaces as well.
    """
    said = _why(finding, version, beside)
    replaced = sorted(_deciding(finding.target) & beside) if beside and NO_OTHER in said else []
    taken = (
        f"; this file replaces `{leaf(replaced[0])}` too, and what it puts there may take another" if replaced else ""
    )
    return said.replace(f", {NO_OTHER}", taken) if replaced else said


def _deciding(target: str) -> set[str]:
    """The one function of Megatron's, on each release, that builds or calls what a patch changes."""
    names = (target, target.rpartition(".")[0])
    uses = (telling(name, release) for release in known.minors() for name in names)
    return {use.place for use in uses if use is not None and use.users < 2}


def _why(finding: Finding, version: Version, beside: Set[str]) -> str:
    if finding.confidence == "possible":
        advice = "if always one of Megatron's, annotate the object with it, and a scan tells what can be done"
        return f"Which class it changes is not known: {advice}"
    release = known.newest(version)
    target = known.name_on(release, finding.target)
    owner, _, name = target.rpartition(".")
    holder = api.lookup(owner)
    found = release.find(target)
    if found is None and (package := known.lacking(release, target)):
        told = ahead(package, target, release, lambda later: why(finding, parse_version(later.label), beside))
        lacks = f"The wheel of megatron-core {minor_of(release.label)} lacks {package}"
        return told or f"{lacks}: `unpatch scan --target-mcore PATH` tells who calls it"
    if found is None and target.startswith(COMPILED):
        return "Megatron has it compiled, without a source in Python: what it changes there cannot be told"
    part = release.find(owner) if found is None else None
    if part is not None and part.fact.trait("from") and part.fact.trait("slot") is None:  # what an object builds itself
        return of_class(part.name.rpartition(".")[0], leaf(owner), part, release, False)
    if found is None:
        return _of_missing(finding, version)
    if holder is None or holder.kind == "module":
        if found.fact.kind == "module":
            verb = "replaces" if finding.confidence == "certain" else "may replace"
            return f"It {verb} a whole module, so what it changes there cannot be told"
        reached = finding.shape in ("string-target", "sys-modules")  # it may be put into every module that has it
        if not reached and (instead := _by_a_copy(target, found, release, beside)):
            return instead
        return _of_module(target, found, release, None if reached else beside)
    whole = finding.shape in ("class-attr", "string-target")
    return of_class(there.name if (there := release.find(holder.name)) else owner, name, found, release, whole)


def history(target: str) -> str:
    """In which releases a name changed, as far as it has a body; else nothing."""
    target = _defined(target)
    for release in known.minors():
        if (fact := release.facts.get(target)) and fact.trait("unread") is not None and (now := fact.trait("alias")):
            return f"Since {minor_of(release.label)} another name of `{leaf(now)}`, which Megatron uses instead"
    fates = known.fates(target)
    there = [(label, fact) for label, fact in fates if fact is not None]
    if not there and target.startswith(f"{TRAINING}."):
        return f"Not there in {show(TRAINING_SINCE)} and later"
    if not there or any(not fact.digest for _, fact in there):
        return ""
    pairs = pairwise(there)
    differing = (label for (_, a), (label, b) in pairs if (a.digest, a.detail) != (b.digest, b.detail))
    changed = [minor_of(label) for label in differing]
    later = [label for label, _ in fates[fates.index(there[-1]) + 1 :]]
    moved = known.moved_to(target) if later else None
    now = f" ({'now' if leaf(moved) == leaf(target) else 'closest to it'} `{moved}`)" if moved else ""
    gone = f"one since {minor_of(later[0])}{now}" if later else ""
    if gone and not changed:
        return f"G{gone}"
    if not changed and there[0][0] == fates[-1][0]:
        return f"{'Moved' if _was_elsewhere(target, *there[0], fates[-2][0]) else 'New'} in {minor_of(there[0][0])}"
    if not changed and _is_all_there_is(target):
        came = there[0] != fates[0] and not known.lacking(known.model(fates[0][0]), target)
        return f"Unchanged since {'it came in ' if came else ''}{minor_of(there[0][0])}"
    if not changed:
        return ""
    said = " and ".join(changed)
    said = said if len(changed) < 3 else f"{len(changed)} of {len(there) - 1} releases, last in {changed[-1]}"
    before = f", before {show(TRAINING_SINCE)} not known" if target.startswith(f"{TRAINING}.") else ""
    return f"Changed in {said}{gone and f', g{gone}'}{before}"


def _is_all_there_is(target: str) -> bool:
    """Whether a body tells what runs: not of a class, whose fields have types, nor of what a subclass has its own."""
    every, (owner, _, name) = api.union(), target.rpartition(".")
    its_own = any(f"{heir}.{name}" in every.facts for heir in every.derived.get(owner, ()))
    return not its_own and (found := every.find(target)) is not None and found.fact.kind != "class"


def _defined(target: str) -> str:
    """A name, or the one under which every release has what a package imports that older wheels lack."""
    now = known.minors()[-1].find(target) if target.startswith(f"{TRAINING}.") else None
    return now.name if now is not None and known.fates(now.name)[0][1] is not None else target


def _was_elsewhere(target: str, release: str, fact: Fact, before: str) -> bool:
    """Whether the release before one had what is new there in another module: itself, or the class that it is of."""
    then, now, owner = known.model(before), known.model(release), target.rpartition(".")[0]
    pairs = [(target, fact), *([(owner, own)] if (own := now.facts.get(owner, fact)).kind == "class" else [])]
    return any(leaf(then.moved(name, its_fact, now) or "") == leaf(name) for name, its_fact in pairs)


def guard(target: str, version: Version) -> str:
    """What `unpatch pin` tells of a name; nothing where it cannot pin it."""
    release = known.newest(version)
    found = release.find(known.name_on(release, target))
    if found is None:
        owner, _, name = target.rpartition(".")
        told = name not in ("*", "__bases__", "__class__") and not target.startswith(COMPILED)
        holder = release.find(owner) if told else None
        if holder is None or holder.fact.kind not in ("class", "module"):  # of a part of a model: no name of Megatron's
            return ""
        return _INHERITED if holder.fact.kind == "class" and api.has_callable(owner, name) else _COMES
    if not found.fact.digest:
        return "`unpatch pin` tells when it is gone"
    if found.fact.trait("abstract") is not None:
        return "`unpatch pin` guards the abstract method alone, not what the subclasses of its class have in its place"
    again = " again" if history(target).startswith("Changed") else ""
    return f"`unpatch pin` tells when it changes{again}"


def outlook(target: str, version: Version) -> str:
    """How often it changed and what guards it, as a sentence."""
    tells, changes = guard(target, version), history(target)
    if known.lacking(known.newest(version), target):
        tells = _CHECKOUT
    if tells in (_COMES, _INHERITED):
        return f"{tells}."
    return f"{'; '.join(filter(None, [changes, tells]))}." if tells else "`unpatch pin` cannot guard it."


def _of_missing(finding: Finding, version: Version) -> str:
    """What Megatron does not define on a release: it was there once, a base class outside has it, or nobody does."""
    owner, _, name = finding.target.rpartition(".")
    holder = api.lookup(owner)
    if finding.shape == "sys-modules" and owner in PACKAGES:
        return f"It is put into each loaded module that has `{name}`, and those call it by name"
    if name == "*":
        return f"Which names of `{leaf(owner)}` it replaces is known only when it runs"
    if name == "__bases__":
        return f"It changes which classes `{leaf(owner)}` inherits from, for every object of it"
    if name == "__class__" and holder is not None and holder.kind == "class":
        return f"It makes a built `{leaf(owner)}` one of another class. {who_builds(owner, known.newest(version))}"
    adds = f"the patch adds it{', and this repository reads it' if finding.assessment.is_read else ''}"
    on, release = f"megatron-core {show(version)}", known.newest(version)
    there = [minor(parse_version(label)) for label, fact in known.fates(finding.target) if fact is not None]
    span = there and (f"up to {show(there[-1])}" if there[0] < version else f"from {show(there[0])} on")
    others = f", only Megatron {span}" if span else ""
    if holder is None or holder.kind not in ("class", "module") or release.find(known.name_on(release, owner)) is None:
        above = (one for one in accumulate(finding.target.split("."), "{}.{}".format) if not known.holds(release, one))
        # The package, the module or the class.
        first = next((part for part in above if part.count(".") > 1), finding.target)
        missing = f"`{leaf(first)}` in `{leaf(first.rpartition('.')[0])}`: what it changes is not known"
        return f"{on} has no {f'`{leaf(owner)}.{name}`{others}' if others else missing}"
    if there:
        return f"{on} has no `{name}` in `{leaf(owner)}`{others}: {adds}"
    outside = [base for base in api.ancestry(holder.name) if not within(base)] if holder.kind == "class" else []
    if holder.kind == "class" and api.has_callable(holder.name, name):
        facts = filter(None, map(release.facts.get, release.lineage(holder.name)))
        made = name in MADE and any(fact.trait("dataclass") is not None for fact in facts)
        base = next((outer for outer in outside if leaf(outer) != "ABC"), "object")
        whence = f"is a dataclass: Python makes its `{name}`" if made else f"inherits `{name}` from `{base}`"
        return f"`{leaf(owner)}` {whence}. {who_builds(holder.name, release, method=name if made else '')}"
    if unknown := [base for base in outside if leaf(base) not in _KNOWN_BASES]:
        return f"`{leaf(owner)}` has `{name}` from outside of Megatron, if at all: `{unknown[0]}` is a base of it"
    similar = () if finding.assessment.is_read or name.startswith("__") else release.ending(name)
    nearest = sorted(similar, key=lambda other: not other.startswith(f"{owner}."))  # a class of the module itself
    # A class, or a module of the package that defines it.
    own = (one for one in nearest if one.startswith(f"{owner}.") and (fact := release.facts.get(one)) and fact.digest)
    classes = (one for one in nearest if leaf(one.rpartition(".")[0]).lstrip("_")[:1].isupper())
    like = next((f", but in `{leaf(one.rpartition('.')[0])}`" for one in chain(classes, own)), "")
    adds += ", and nothing of Megatron reads it there" if like and holder.kind == "module" else ""
    if finding.shape == "module-attr" and finding.message.startswith("replaces"):  # it is read to be wrapped
        adds = "what it changes is not known"
    like = like or ("" if name.startswith("__") or release.ending(name) else ", nor anywhere else")
    return f"{on} has no `{name}` in `{leaf(owner)}`{like}: {adds}"


def adds(target: str, release: Model) -> bool:
    """Whether a release has a class or module and nothing under a name of it, so that a patch adds it."""
    owner, _, name = target.rpartition(".")
    holder = release.find(owner)
    if holder is None or holder.fact.kind not in ("class", "module") or name[:2] == "__" or name == "*":
        return False
    if target.startswith(COMPILED):
        return False  # it is there, and no model shows it
    if known.holds(release, known.name_on(release, target)):
        return False
    outside = (leaf(base) for base in release.lineage(holder.name) if not within(base))
    return all(base in _KNOWN_BASES for base in outside)


def _of_module(target: str, found: Known, release: Model, beside: Set[str] | None) -> str:
    """A name of a module: those who use it find it there, or have a copy that no patch `beside` it replaces."""
    unread = release.facts.get(target, found.fact).trait("unread") is not None
    use = None if unread else telling(target, release)

    def say(later: Model) -> str:
        return _of_module(target, later.find(target) or found, later, beside)

    if use is None and (told := ahead(TRAINING, target, release, say)):
        return told
    held = _held_elsewhere(target, release, beside) if beside is not None else ""
    return _told_of(target, found, release, use, unread) + held


def _told_of(target: str, found: Known, release: Model, use: Usage | None, unread: bool) -> str:
    is_copy, original = target in release.facts and target != found.name, telling(found.name, release)
    if unread:
        nobody = f"Nothing of megatron-core {minor_of(release.label)} reads it"
        here, there = (name.rpartition(".")[0] for name in (target, found.name))
        where = f" there, but from `{leaf(there)}`" if here != there and is_copy and original is not None else ""
        return f"{nobody}{where}; {_others(release)} may, and code of yours that does can take another"
    importing = [one for name in _importing(target, release) if (one := telling(name, release))] if is_copy else []
    if every := [each for each in (use, *importing) if each is not None]:
        use = replace(every[0], users=sum(each.users for each in every))
    if use is None and target in release.imported:
        return "Megatron imports it from there by name: no argument or config field for another is known"
    if use is None and is_copy and original is not None:
        here, there = (leaf(name.rpartition(".")[0]) for name in (target, found.name))
        taken = f"Megatron takes it from `{there}`; that it reads it from `{here}` is not known"
        return f"{taken}, {_others(release)} may"
    if (use := use or original) is None:
        return f"Who reads it in megatron-core {minor_of(release.label)} is not evident; {_others(release)} may"
    if (is_class := found.fact.kind == "class") and LANGUAGE_MODULE in api.ancestry(found.name):
        return who_builds(found.name, release)
    match use.how:
        case "s":
            named = f"{who(use, 'names', release)} it in a ModuleSpec: yours can name another"
            return f"{named}{out_of_reach(found.name, release)}"
        case "a":
            taken = f"{who(use, 'takes', release)} it by default: another can be passed only where you make that call"
            return f"{taken} yourself{out_of_reach(found.name, release)}"
        case "c" | "e":
            beside = release.members(found.name.rpartition(".")[0]) if found.fact.kind == "function" else ()
            picking = (name for name, fact in beside if found.name in (fact.trait("picks") or "").split("|"))
            picks = next((f"`{name}` picks" for name in picking), "")
            does = picks or who(use, "builds" if is_class else "calls", release)
            return f"{does} it by name{no_other(target if release.uses(target) else found.name, release)}"
        case "i" | "q":
            return f"{who(use, 'tests', release)} for it by name, {NO_OTHER}"
        case "b":
            late = ": the patch does not reach them" if (use.place, use.users) == (target.rpartition(".")[0], 1) else ""
            return f"Classes of `{leaf(use.place)}` derive from it, which is settled when they are imported{late}"
    return f"{who(use, 'uses', release)} it by name: no argument or config field for another is known"


def _importing(target: str, release: Model) -> list[str]:
    """The names under which other modules have what they import from there."""
    named = ((name, release.facts.get(name)) for name in release.ending(leaf(target)))
    return [name for name, fact in named if fact is not None and (fact.kind, fact.detail) == ("import", target)]


def _by_a_copy(target: str, found: Known, release: Model, beside: Set[str]) -> str:
    """That Megatron has a name of a module by a copy that is replaced as well, out of reach of this; else nothing."""
    use, uses, name = telling(found.name, release), {*release.uses(found.name)}, leaf(target)
    alone = f"{module_of(use.place, release)}.{name}" if use is not None and use.users == 1 else ""
    is_first = target == found.name or not uses.issubset(release.uses(target))
    copies = (one for one in release.ending(name) if one in beside and one not in (target, found.name))
    through = (one for one in copies if one == alone or (is_first and uses.issubset(release.uses(one))))
    if use is None or not (copy := next(through, "")):
        return ""
    as_well = f"`{told_apart(copy.rpartition('.')[0], release)}.{name}`, which this file replaces as well"
    return f"{who(use, 'uses', release)} it as {as_well}: this line does not reach that once it is imported"


def _held_elsewhere(target: str, release: Model, beside: Set[str] = frozenset()) -> str:
    """Which modules have a name of their own for it that no patch beside it replaces; else nothing."""
    name = leaf(target)
    users = {module_of(usage.place, release) for usage in release.uses(target)}
    own = release.find(target)
    if own is not None and own.name == target:
        copies = [copy for copy in release.ending(name) if copy != target and copy in release.facts]
    else:  # who has it from another module is not reached at all
        copies = _importing(target, release)
    held = [copy for copy in copies if own is not None and (there := release.find(copy)) and there.name == own.name]
    held = [copy for copy in held if (fact := release.facts[copy]).kind == "import" and fact.trait("typing") is None]
    held += [copy for copy in copies if release.facts[copy].kind == "value" and copy.rpartition(".")[0] in users]
    first = module_of(use.place, release) if (use := telling(target, release)) is not None else ""

    def far(copy: str) -> tuple[bool, bool, str]:
        module = copy.rpartition(".")[0]
        return module != first, module not in users, copy

    held = sorted({*held}.difference(beside), key=far)
    # A package is there before its parts, and gives others what it has.
    above = [one for one in held if target.startswith(f"{one.rpartition('.')[0]}.")]
    out = [one for one in held if one in above or release.facts[one].detail in above]
    late = [one for one in held if one not in out]
    said = (f" in {_counted(some, release)}{when}" for some, when in ((out, ""), (late, " if imported before")) if some)
    return f"; no effect{', nor'.join(said)}" if held else ""


def _counted(copies: Sequence[str], release: Model) -> str:
    """The module of the first of some names, and how many more there are."""
    more = f" and {len(copies) - 1} more" if copies[1:] else ""
    return f"`{told_apart(copies[0].rpartition('.')[0], release)}`{more}"


def _others(release: Model) -> str:
    """Who may use a name besides what the model of a release holds."""
    return (
        f"{TRAINING}, which was not read, or other packages" if known.lacking(release, TRAINING) else "other packages"
    )
