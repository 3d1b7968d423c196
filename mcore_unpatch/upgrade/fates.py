"""How urgent a patch is on another release: broken, silently different, harmless, or no longer needed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import DONE
from mcore_unpatch.judge import judge
from mcore_unpatch.judge.callers import callers
from mcore_unpatch.judge.case import Case
from mcore_unpatch.judge.demands import IMPORT
from mcore_unpatch.judge.originals import way_around_original
from mcore_unpatch.judge.statement import IDLE, RAISES, SILENT, STOPS, Statement, labels
from mcore_unpatch.judge.step import between
from mcore_unpatch.library.digests import split, statement_digests
from mcore_unpatch.library.fact import quoted
from mcore_unpatch.library.model import Known, Model, likeness
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.layout import HOOK_SINCE
from mcore_unpatch.megatron.versions import LIBRARY, RELEASES, parse_version, within
from mcore_unpatch.records import asdict, field, record, replace

URGENCIES = ("breaks", "different", "unnecessary", "harmless")
_A_COPY = 0.4  # of the statements in common; what shares less was written anew
_MOST_HELPERS = 2  # that are named
Step = tuple[Model, Model]


@record
class Change:
    """The fate of a name. kind: unchanged, body, signature, moved, gone, or unknown where the old release lacks it."""

    name: str
    kind: str
    before: Known | None = None
    after: Known | None = None
    moved_to: str | None = None

    @property
    def sentence(self) -> str:
        """What happened, in a few words."""
        match self.kind:
            case "signature" if self.before is not None and self.after is not None:
                then, now = (("self", "cls", *side.fact.parameters.names) for side in (self.before, self.after))
                fresh = quoted(name for name in now if name not in then)
                gone = quoted(name for name in then if name not in now)
                said = [*([f"new parameter {fresh}"] if fresh else []), *([f"removed {gone}"] if gone else [])]
                return f"signature changed: {', '.join(said) or 'different order or defaults'}"
            case "moved":
                return f"moved to `{self.moved_to}`"
            case "body":
                return "body changed"
        return self.kind


def change(name: str, old: Model, new: Model) -> Change:
    """Compare one name in two releases."""
    before, after = (model.find(known.name_on(model, name)) for model in (old, new))
    if before is None:
        return Change(name, "unknown", None, after)
    if after is None:
        moved = new.moved(before.name, before.fact, old)
        return Change(name, "moved" if moved else "gone", before, new.find(moved) if moved else None, moved)
    then, now = before.fact, after.fact
    if then.detail != now.detail and now.kind == then.kind == "function":
        return Change(name, "signature", before, after)
    same = (then.kind, then.detail, then.digest) == (now.kind, now.detail, now.digest)
    return Change(name, "unchanged" if same else "body", before, after)


@record
class Copy:
    """A replacement that began as Megatron's own function."""

    release: str
    share: float
    missing: int  # statements that the newer release has, the older had not, and the copy lacks
    stale: int = 0  # statements that it still has, and the newer release took out
    upstreamed: bool = False  # the new release has all that the copy added, and nothing of what it took out
    helpers: tuple[str, ...] = ()  # functions of the repository that it calls


@record
class Fate:
    """What happens to one patch."""

    finding: Finding
    urgency: str
    target: Change
    reasons: tuple[str, ...]  # the most urgent first
    statements: tuple[Statement, ...] = ()
    copy: Copy | None = None
    case: Case | None = field(default=None, repr=False)
    steps: dict[str, str] = field(default_factory=dict)  # reasons that hold for some steps alone: `from 0.16.1`

    @property
    def is_idle(self) -> bool:
        """Whether nothing calls it, on the older release either."""
        return self.urgency == "harmless" and any(statement.kind == IDLE for statement in self.statements)

    @property
    def fix(self) -> str:
        """What `migrate` may do about it; what the older release runs is not deleted for the newer one's sake."""
        stops = self.urgency == "different" and self.finding.verdict == "delete"
        return "" if stops else self.finding.fix or ""

    def told(self, reasons: Sequence[str]) -> tuple[str, ...]:
        """Some of its reasons, each with the steps that it is for."""
        return tuple(f"{self.steps[reason]}: {reason}" if reason in self.steps else reason for reason in reasons)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        copied = {**asdict(self.copy), "share": round(self.copy.share, 2)} if self.copy is not None else None
        return {
            **{name: getattr(self.finding, name) for name in ("rule", "path", "line", "target")},
            "fix": self.fix or None,
            "urgency": self.urgency,
            "change": self.target.kind,
            "moved_to": self.target.moved_to,
            "reasons": list(self.told(self.reasons)),
            "statements": [statement.to_json() for statement in self.statements],
            "copy": copied,
        }


def fate(finding: Finding, case: Case | None, old: Model, new: Model, ran: bool = True) -> Fate:
    """The fate of one patch between two releases; `ran`: on the one that a repository comes from."""
    happened = change(finding.target, old, new)
    if case is None:  # a patch file, or a name that only a text tells
        return _of_file(finding, happened)
    beside = finding.verdict == DONE and parse_version(new.label) >= HOOK_SINCE  # its official way is taken there
    if beside or not finding.live.on(parse_version(new.label)):
        return _never_runs(finding, case, happened, old, new)
    if (first := _first_that_runs(finding, old, new)) is not old:
        begun = fate(finding, case, first, new, ran=False)
        said = f"it does not run on megatron-core {old.label}{finding.live.elsewhere}"
        return replace(begun, reasons=(said, *begun.reasons)) if begun.urgency == "harmless" else begun
    statements = between(case, old, new)
    if text := finding.assessment.overridden and f"; {finding.assessment.overridden}":
        statements = [replace(one, text=one.text + text) if one.kind == RAISES else one for one in statements]
    too = {True: f" (on {old.label} too)" if ran else "", False: ""}
    raises = [f"{text}{too[one.before]}" for one in statements for text in judge.texts([one], case, RAISES)]
    idle = judge.texts(statements, case, IDLE)
    copied = _copy_of(case, happened, old)
    different = judge.texts(statements, case, *SILENT)
    different += _unjudged(finding, happened, old, new, bool(raises))
    is_dead = any(statement.kind == IDLE and not statement.exception for statement in statements)
    different += _body(case, happened, copied, old, new) if not is_dead else []
    reasons = [*raises, *different, *idle]
    # What the older release runs and the newer one never does is no help.
    if raises:
        urgency = "breaks"
    elif copied is not None and copied.upstreamed:
        urgency, reasons = "unnecessary", []
    elif finding.verdict == "delete" and not any(statement.kind == STOPS for statement in statements):
        urgency, reasons = "unnecessary", [finding.evidence.partition("; `unpatch")[0].rstrip(".")]
    elif different:
        urgency = "different"
    elif is_dead and finding.verdict == "steps" and all(statement.before for statement in statements):
        urgency, reasons = "unnecessary", [f"{idle[0]}: delete it, or patch what took its place"]
    elif finding.fix:
        urgency = "unnecessary"
        reasons.append("there is a replacement for it; run `unpatch migrate`")
    elif (
        case.new.function is not None
        and not (case.reaches_original or idle)
        and (words := _of_spec(finding.target, new))
    ):
        urgency, reasons = "different", [f"{words}: what the step does to this cannot be told"]
    else:
        urgency = "harmless"
        reasons += [] if idle else [_harmless(happened, case, old, new)]
    if copied is not None and copied.upstreamed:
        reasons.append(f"megatron-core {new.label} already does what this copy does; delete the patch")
    return Fate(finding, urgency, happened, tuple(dict.fromkeys(reasons)), tuple(statements), copied, case)


def _of_spec(target: str, new: Model) -> str:
    """Of a method of what a spec names, `SelfAttention.core_attention.forward`: whose it is, in words; else nothing."""
    owner = target.rpartition(".")[0]
    if (found := new.find(owner)) is None or found.fact.trait("slot") is None:
        return ""
    holder, attribute = owner.split(".")[-2:]
    return f"`{holder}` builds `{attribute}` from a spec, of whatever class that names"


def _first_that_runs(finding: Finding, old: Model, new: Model) -> Model:
    """The release on which a patch begins to run, where the older one of two does not run it."""
    if {old.label, new.label} - {*RELEASES} or finding.live.on(parse_version(old.label)):
        return old
    first, last = map(RELEASES.index, (old.label, new.label))
    return next((known.model(one) for one in RELEASES[first : last + 1] if one in finding.live.releases), old)


def _of_file(finding: Finding, happened: Change) -> Fate:
    if finding.breaks:
        return Fate(finding, "breaks", happened, finding.breaks)
    if finding.upstream_has:
        return Fate(finding, "unnecessary", happened, (finding.upstream_has,))
    said = (finding.kept_because or finding.message).replace("--target-mcore", "--to")  # as this command names it
    return Fate(finding, "different", happened, (said,))


def _never_runs(finding: Finding, case: Case, happened: Change, old: Model, new: Model) -> Fate:
    """A patch whose guard keeps it off the new release: what its file imports may fail there all the same."""
    broken = [statement for statement in judge.on(case, new) if statement.kind == RAISES and statement.when == IMPORT]
    if broken:
        return Fate(finding, "breaks", happened, tuple(judge.texts(broken, case)), tuple(broken), None, case)
    said = f"it never runs on megatron-core {new.label}{finding.live.elsewhere}"
    if finding.live.on(parse_version(new.label)):
        said = finding.evidence.rstrip(".")
    if not finding.live.releases or finding.live.on(parse_version(new.label)):
        return Fate(finding, "harmless", happened, (said,), (), None, case)
    ends = f": what it does on {old.label} ends there" if finding.live.on(parse_version(old.label)) else ""
    done = f"{ends}; delete it when you no longer support those"
    return Fate(finding, "unnecessary", happened, (said + done,), (), None, case)


def statements_of(case: Case) -> bytes:
    """The digests of the statements of a replacement."""
    return statement_digests(case.new.function, LIBRARY.top) if case.new.function is not None else b""


def _copy_of(case: Case, happened: Change, old: Model) -> Copy | None:
    """The release whose function the replacement was copied from: the nearest of all, if it is near."""
    own = statements_of(case)
    if not own or happened.before is None:
        return None
    versions = known.atlas().versions(happened.before.name)
    if old.label not in RELEASES:
        versions = [*versions, (old.label, happened.before.fact)]
    scored = [(likeness(fact.statements, own), release, fact) for release, fact in versions if fact is not None]
    if not scored:
        return None
    share, release, fact = max(scored, key=lambda item: item[0])
    if share < _A_COPY:
        return None
    now = split(happened.after.fact.statements) if happened.after else []
    had, has, then = set(split(fact.statements)), set(split(own)), set(split(happened.before.fact.statements))
    helpers = {getattr(one.function, "name", ""): one.function for _, one in case.new.helpers if one.function}
    below = {digest for helper in helpers.values() for digest in split(statement_digests(helper, LIBRARY.top))}
    missing = sum(statement not in then and statement not in has | below for statement in now)
    stale = sum(statement in has and statement not in now for statement in then)
    upstreamed = bool(now) and has <= set(now) and (had - has).isdisjoint(now)
    return Copy(release, share, missing, stale, upstreamed, tuple(helpers))


def _body(case: Case, happened: Change, copied: Copy | None, old: Model, new: Model) -> list[str]:
    """What the function that is replaced does now, and the replacement does not."""
    install, is_changed = case.install, happened.kind in ("body", "signature")
    if api.is_module(install.target, install.shape):
        is_changed = _digests(old, install.target) != _digests(new, install.target)
    if not is_changed:
        return []
    if (install.shape == "source-rewrite" and case.new.function is None) or happened.kind == "unchanged":
        rewrites = "rewrites the source" if install.sure else "may rewrite the source"
        does = rewrites if install.shape == "source-rewrite" else "stands for a whole module"
        return [f"it {does}, which changed: whether it fits megatron-core {new.label} is not known"]
    if case.new.function is None:
        if case.reaches_original or not _is_unread(case):
            return []
        return [f"{happened.kind} changed; the replacement is not read here: whether it fits is not known"]
    around = way_around_original(case.install, case.new) if case.reaches_original else 0
    if case.reaches_original and not around:
        return []
    if copied is not None and (copied.missing or copied.stale):
        number, helpers = copied.missing or copied.stale, quoted(copied.helpers, _MOST_HELPERS)
        some = f"{number} statement{'s' if number != 1 else ''} that"
        unless = f", unless {helpers}, which it calls, has them in other words" if helpers else ""
        lacks = f"lacks {some} came after megatron-core {old.label}{unless}"
        which = lacks if copied.missing else f"has {some} megatron-core {new.label} no longer has"
        return [f"a copy of {copied.release}'s function ({copied.share:.0%} alike) {which}"]
    before, after = (known and known.fact.statements for known in (happened.before, happened.after))
    if copied is not None or (before is not None and before == after):
        return []
    if around:
        return [f"body changed; line {around} returns without a call of the original, and so without that change"]
    if _stands_for_itself(case, happened, old, new):
        return []
    return ["body changed; the replacement does not call the original, so it does not have that change"]


def _digests(model: Model, owner: str) -> dict[str, object]:
    """What a module or a class holds, by name: two releases that agree on it have the same one."""
    found: dict[str, object] = {}
    for leaf, fact in model.members(owner):
        name = f"{owner}.{leaf}"
        found |= {name: fact.digest} | (_digests(model, name) if fact.kind == "class" else {})
    return found


def _is_unread(case: Case) -> bool:
    """Whether what is put in place is neither a plain value nor a class; a text may name what is not here."""
    if case.install.named:
        return case.own_class[0] is None
    value, at = case.install.value, case.resolver.at(case.install.site)
    ref = at.expr(value) if isinstance(value, ast.Name | ast.Attribute) else None
    return not (value is None or isinstance(value, ast.Constant) or (ref is not None and ref.kind == "class"))


def _stands_for_itself(case: Case, happened: Change, old: Model, new: Model) -> bool:
    """Whether a replacement has nothing of the function, and both releases call it alike: its change is none of ours.

    What a spec is made into is decided by who gets it.
    """
    if happened.before is None:
        return False
    shared = set(split(statements_of(case))).intersection(split(happened.before.fact.statements))
    then, now = ({usage.call for usage in case.callers(model)} for model in (old, new))
    returned = happened.before.fact.trait("type") or ""
    return not shared and bool(then) and then == now and not returned.endswith("ModuleSpec")


def _unjudged(finding: Finding, happened: Change, old: Model, new: Model, raises: bool) -> list[str]:
    """What the two releases cannot be compared on: a name that is new, or that neither has, names that are not evident.

    That neither has it is said by what raises, too.
    """
    owner, _, name = finding.target.rpartition(".")
    short = ".".join(finding.target.split(".")[-2:])
    for model, option in ((old, "--from"), (new, "--to")):
        if package := known.lacking(model, finding.target):
            unknown = f"{package} of megatron-core {model.label} is not known: the wheel does not hold it"
            return [f"{unknown}, so what the step does to this cannot be told; name a checkout with {option} PATH"]
    if name == "*":
        return [f"which names of `{owner.rpartition('.')[2]}` it sets is not evident, so nothing is said of them"]
    if happened.kind == "unknown" and happened.after is not None and known.holds(old, owner):
        caller = next((usage.place for usage in callers(new, happened.after.name)), "")
        calls = f" and `{'.'.join(caller.split('.')[-2:])}` calls it" if caller else ""
        homes = () if short[:1].isupper() else known.atlas().names.ending(name)  # it may have moved
        unread = next((f" ({package} was not read)" for home in homes if (package := known.lacking(old, home))), "")
        none = f"megatron-core {old.label} has none{unread}"
        return [f"`{short}` is new: {none}, {new.label} has one{calls}; this replaces it"]
    if raises or not within(owner) or any(known.holds(model, owner) for model in (old, new)):
        return []
    return [f"neither release has `{'.'.join(owner.split('.')[-2:])}`, so what this changes is not known"]


def _harmless(happened: Change, case: Case, old: Model, new: Model) -> str:
    match happened.kind:
        case "unchanged":
            return "what it replaces is unchanged"
        case "unknown":
            return "it adds a name, or replaces one that Megatron Core does not define"
    if case.reaches_original:
        return f"{happened.sentence}; the replacement calls the original"
    if case.new.function is not None and _stands_for_itself(case, happened, old, new):
        return f"{happened.sentence}; the replacement has nothing of the original, and is called as before"
    if case.new.function is None:
        return f"{happened.sentence}; what takes its place is no copy of it"
    return f"{happened.sentence}; the statements are the same, and its callers pass what the replacement takes"


# --- several steps --------------------------------------------------------------------------------------------------


def worst(fates: Sequence[Fate], steps: Sequence[Step]) -> Fate:
    """The most urgent fate of a patch over some steps, with the reasons of all of them that are not harmless."""
    chosen = min(fates, key=lambda each: URGENCIES.index(each.urgency))
    by_reason: dict[str, list[Step]] = {}
    for each, step in zip(fates, steps, strict=True):
        for reason in each.reasons if each.urgency == chosen.urgency or each.urgency != "harmless" else ():
            by_reason.setdefault(reason, []).append(step)
    some = {reason: steps_in_words(those, steps) for reason, those in by_reason.items() if len(those) < len(steps)}
    every = tuple(dict.fromkeys(statement for each in fates for statement in each.statements))
    return replace(chosen, reasons=tuple(by_reason), statements=every, steps=some)


def steps_in_words(some: Sequence[Step], steps: Sequence[Step]) -> str:
    """Which steps are meant, by the side on which they differ."""
    several = len({new.label for _, new in steps}) > 1
    words = f"from {labels([old for old, _ in some], [old for old, _ in steps])}"
    return f"{words} to {labels([new for _, new in some])}" if several else words
