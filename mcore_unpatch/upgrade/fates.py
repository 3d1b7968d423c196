"""How urgent a patch is on another release: broken, silently different, harmless, or no longer needed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.judge import judge
from mcore_unpatch.judge.demands import IMPORT
from mcore_unpatch.judge.judge import Case
from mcore_unpatch.judge.statement import CHANGES, IDLE, RAISES, Statement
from mcore_unpatch.judge.step import between
from mcore_unpatch.library.digests import split, statement_digests
from mcore_unpatch.library.model import Model, likeness
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.roots import LIBRARY
from mcore_unpatch.megatron.versions import RELEASES, parse_version
from mcore_unpatch.upgrade.changes import Change, change

URGENCIES = ("breaks", "different", "unnecessary", "harmless")
_A_COPY = 0.4  # of the statements in common; what shares less was written anew


@dataclass(frozen=True, slots=True)
class Copy:
    """A replacement that began as Megatron's own function."""

    release: str
    share: float
    missing: int  # statements that upstream has now, had not then, and the copy lacks
    upstreamed: bool = False  # the new release has all that the copy added, and nothing of what it took out


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one patch."""

    finding: Finding
    urgency: str
    target: Change
    reasons: tuple[str, ...]  # the most urgent first
    statements: tuple[Statement, ...] = ()
    copy: Copy | None = None
    case: Case | None = field(default=None, repr=False)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        copied = None
        if self.copy is not None:
            copied = {**asdict(self.copy), "share": round(self.copy.share, 2)}
        return {
            **{name: getattr(self.finding, name) for name in ("rule", "path", "line", "target", "fix")},
            "urgency": self.urgency,
            "change": self.target.kind,
            "moved_to": self.target.moved_to,
            "reasons": list(self.reasons),
            "statements": [one.to_json() for one in self.statements],
            "copy": copied,
        }


def fate(finding: Finding, case: Case | None, old: Model, new: Model) -> Fate:
    """The fate of one patch between two releases."""
    happened = change(finding.target, old, new)
    if case is None:  # a patch file, or a name that only a text tells
        return _of_file(finding, happened)
    if not finding.live.on(parse_version(new.label)):
        return _never_runs(finding, case, happened, new)
    statements = between(case, old, new)
    raises = [f"{text}{_already(one, old)}" for one in statements for text in judge.texts([one], case, RAISES)]
    idle = judge.texts(statements, case, IDLE)
    copied = _copy_of(case, happened, old)
    different = [*judge.texts(statements, case, CHANGES), *idle, *_body(case, happened, copied, new)]
    reasons = [*raises, *different]
    if raises:
        urgency = "breaks"
    elif copied is not None and copied.upstreamed:
        urgency, reasons = "unnecessary", []
    elif finding.verdict == "delete":
        urgency, reasons = "unnecessary", [finding.evidence.partition("; `unpatch")[0].rstrip(".")]
    elif different:
        urgency = "different"
    elif finding.fix:
        urgency = "unnecessary"
        reasons.append("an official replacement exists; run `unpatch migrate`")
    else:
        urgency = "harmless"
        reasons.append(_harmless(happened, case))
    if copied is not None and copied.upstreamed:
        reasons.append(f"megatron-core {new.label} already does what this copy does; delete the patch")
    return Fate(finding, urgency, happened, tuple(dict.fromkeys(reasons)), tuple(statements), copied, case)


def _already(one: Statement, old: Model) -> str:
    return f" (on {old.label} too)" if one.before else ""


def _of_file(finding: Finding, happened: Change) -> Fate:
    if finding.breaks:
        return Fate(finding, "breaks", happened, finding.breaks)
    if finding.upstream_has:
        return Fate(finding, "unnecessary", happened, (finding.upstream_has,))
    return Fate(finding, "different", happened, (finding.kept_because or finding.message,))


def _never_runs(finding: Finding, case: Case, happened: Change, new: Model) -> Fate:
    """A patch whose guard keeps it off the new release: what its file imports may fail there all the same."""
    broken = [one for one in judge.on(case, new) if one.kind == RAISES and one.when == IMPORT]
    if broken:
        return Fate(finding, "breaks", happened, tuple(judge.texts(broken, case)), tuple(broken), None, case)
    said = f"it never runs on megatron-core {new.label}, only on {finding.live}"
    if not finding.live.releases:
        return Fate(finding, "harmless", happened, (said,), (), None, case)
    done = "; delete it when you no longer support those"
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
    had, has = set(split(fact.statements)), set(split(own))
    missing = sum(statement not in had and statement not in has for statement in now)
    return Copy(release, share, missing, bool(now) and has <= set(now) and (had - has).isdisjoint(now))


def _body(case: Case, happened: Change, copied: Copy | None, new: Model) -> list[str]:
    """What the function that is replaced does now, and the replacement does not."""
    if case.new.function is None or case.reaches_original or happened.kind not in ("body", "signature"):
        return []
    if copied is not None and copied.missing:
        lacks = f"{copied.missing} statement{'s' if copied.missing != 1 else ''} that megatron-core {new.label} has"
        return [f"a copy of {copied.release}'s function ({copied.share:.0%} alike) lacks {lacks}"]
    if copied is not None or happened.same_body:
        return []
    return ["body changed; the replacement does not call the original, so it does not have that change"]


def _harmless(happened: Change, case: Case) -> str:
    match happened.kind:
        case "unchanged":
            return "what it replaces is unchanged"
        case "unknown":
            return "it adds a name, or replaces one that Megatron Core does not define"
    if case.reaches_original:
        return f"{happened.sentence}; the replacement calls the original"
    return f"{happened.sentence}; the statements are the same, and its callers pass what the replacement takes"
