"""How urgent a patch is on another release: broken, silently different, harmless, or no longer needed."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron import facts, history
from mcore_unpatch.megatron.definitions import Definition
from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.judging import breakage
from mcore_unpatch.upgrade.changes import Change, change
from mcore_unpatch.upgrade.leaning import Leaning, Use
from mcore_unpatch.upgrade.releases import Release, likeness, statements

URGENCIES = ("breaks", "different", "unnecessary", "harmless")
_RELEASE = re.compile(r"megatron-core [\d.]+\+?")  # the same trouble on two releases is the same
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
    copy: Copy | None = None
    leaning: Leaning | None = field(default=None, repr=False)

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
            "copy": copied,
        }


def judge(finding: Finding, leaning: Leaning | None, old: Release, new: Release) -> Fate:
    """The fate of one patch between two releases."""
    happened = change(finding.target, old, new)
    if not finding.live.on(new.version):
        return _never_runs(finding, leaning, happened, old, new)
    breaks = [*_owner_gone(finding, happened, old, new)]
    if finding.shape == "patch-file":
        breaks += finding.breaks
    copied = None
    different: list[str] = []
    if leaning is not None:
        breaks += _exceptions(leaning, new, old)
        breaks += [said for use in leaning.uses for said in _use_breaks(use, old, new)]
        copied = _copy_of(leaning, happened)
        different += _silent(leaning, happened, copied, new)
    breaks = list(dict.fromkeys(breaks))
    reasons = [*breaks, *different]
    if breaks:
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
        reasons.append(_harmless(happened, leaning))
    if copied is not None and copied.upstreamed:
        reasons.append(f"megatron-core {new.label} already does what this copy does; delete the patch")
    return Fate(finding, urgency, happened, tuple(reasons), copied, leaning)


def _never_runs(finding: Finding, leaning: Leaning | None, happened: Change, old: Release, new: Release) -> Fate:
    """A patch whose guard keeps it off the new release: what its file imports may fail there all the same."""
    uses = [use for use in leaning.uses if use.on_import] if leaning is not None else []
    if breaks := list(dict.fromkeys(said for use in uses for said in _use_breaks(use, old, new))):
        return Fate(finding, "breaks", happened, tuple(breaks), None, leaning)
    said = f"it never runs on megatron-core {new.label}, only on {finding.live}"
    if not finding.live.releases:
        return Fate(finding, "harmless", happened, (said,), None, leaning)
    done = "; delete it when you no longer support those"
    return Fate(finding, "unnecessary", happened, (said + done,), None, leaning)


def _owner_gone(finding: Finding, happened: Change, old: Release, new: Release) -> list[str]:
    """The class or module that is patched, where the code must import or read it."""
    owner = finding.target.rpartition(".")[0]
    if not within(owner) or old.find(owner) is None or new.find(owner) is not None:
        return []
    fate = change(owner, old, new)
    return [f"`{owner}` is {fate.kind if fate.kind == 'gone' else fate.sentence}: ImportError or AttributeError"]


def _exceptions(leaning: Leaning, new: Release, old: Release) -> list[str]:
    """What the replacement itself raises on the new release and did not raise on the old one."""
    known = {_RELEASE.sub("", said) for said in breakage.describe(leaning.install, leaning.new, old.version)}
    after = breakage.describe(leaning.install, leaning.new, new.version)
    return [said for said in after if "Error" in said and _RELEASE.sub("", said) not in known]


def _use_breaks(use: Use, old: Release, new: Release) -> list[str]:
    """Why a use of a name fails on the new release; nothing if it failed on the old one too."""
    happened = change(use.name, old, new)
    where = f"{use.path}:{use.line}"
    match happened.kind:
        case "gone" | "moved":
            kind = "AttributeError"
            if use.imported:
                kind = "ImportError" if new.find(use.module) else "ModuleNotFoundError"
            hint = f"; it is now `{happened.moved_to}`" if happened.moved_to else ""
            when = "on import" if use.on_import else "when it runs"
            return [f"`{use.name}` (line {use.line}) was removed: {kind} {when}{hint}"]
        case "signature" if use.positions is not None and happened.after is not None and happened.before is not None:
            wrong = _misfit(use, happened.after.definition)
            if wrong and not _misfit(use, happened.before.definition):
                return [f"the call of `{use.name.rpartition('.')[2]}` at {where} {wrong}: TypeError"]
    return []


def _misfit(use: Use, definition: Definition) -> str:
    """Why a call does not fit a signature; empty if it does, or if `*args` and `**kwargs` hide what is passed."""
    words = [word for word in definition.signature.split() if word not in ("self", "cls", "/")]
    names = {word.rstrip("=") for word in words}
    if not any(word.startswith("**") for word in words):
        unknown = [name for name in use.keywords if name not in names]
        if unknown:
            return f"passes {_quoted(unknown)}, which is no longer a parameter"
    if use.open_ended:
        return ""
    before_star = words[: next((at for at, word in enumerate(words) if word.startswith("*")), len(words))]
    taken = [word.rstrip("=") for word in before_star[: use.positions or 0]]
    needed = [word for word in words if not word.endswith("=") and not word.startswith("*")]
    missing = [word for word in needed if word not in taken and word not in use.keywords]
    return f"does not pass {_quoted(missing)}, which is required" if missing else ""


def _copy_of(leaning: Leaning, happened: Change) -> Copy | None:
    """The release whose function the replacement was copied from: the nearest of all, if it is near."""
    if not leaning.statements or happened.before is None:
        return None
    versions = history.versions_of(happened.before.name)
    scored = [
        (likeness(known.statements, leaning.statements), release, known)
        for release, known in versions
        if known is not None
    ]
    if not scored:
        return None
    share, release, known = max(scored, key=lambda item: item[0])
    if share < _A_COPY:
        return None
    now = statements(happened.after.definition.statements) if happened.after else []
    had, has = set(statements(known.statements)), set(statements(leaning.statements))
    missing = sum(statement not in had and statement not in has for statement in now)
    return Copy(release, share, missing, bool(now) and has <= set(now) and (had - has).isdisjoint(now))


def _silent(leaning: Leaning, happened: Change, copied: Copy | None, new: Release) -> list[str]:
    """What changes without an error."""
    said = [text for text in breakage.describe(leaning.install, leaning.new, new.version) if "silently" in text]
    if happened.kind in ("gone", "moved") and not leaning.install.adds:
        backups = leaning.new.delegates
        if not backups:
            said.append(f"megatron-core {new.label} no longer has this name, so the patch is never called")
    if (leaning.install.owner, leaning.install.attribute) in facts.INERT_SINCE:
        since, why = facts.INERT_SINCE[leaning.install.owner, leaning.install.attribute]
        if since <= new.version:
            said.append(f"has no effect: {why}")
    if leaning.new.function is None or leaning.new.delegates or happened.kind not in ("body", "signature"):
        return said
    if copied is not None and copied.missing:
        lacks = f"{copied.missing} statement{'s' if copied.missing != 1 else ''} that megatron-core {new.label} has"
        said.append(f"a copy of {copied.release}'s function ({copied.share:.0%} alike) lacks {lacks}")
    elif copied is None:
        said.append(f"{happened.sentence}; the replacement does not have this change")
    return said


def _harmless(happened: Change, leaning: Leaning | None) -> str:
    match happened.kind:
        case "unchanged":
            return "what it replaces is unchanged"
        case "unknown":
            return "it adds a name, or replaces one that Megatron Core does not define"
    if leaning is not None and leaning.new.delegates:
        return f"{happened.sentence}; the replacement calls the original"
    return happened.sentence


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
