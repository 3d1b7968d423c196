"""Patches that raise where the repository may have put something of its own: another caller, or what they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import ON_OBJECTS
from mcore_unpatch.judge.handed_over import HandedOver
from mcore_unpatch.judge.instead import leaf
from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.layout import CONFIG
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.stacks.revision import Judged


def mark(findings: list[Finding], given: Callable[[], HandedOver], judged: Callable[[str], Judged]) -> list[Finding]:
    """The findings, those that break only where Megatron's own is at work, or on no known release that runs, as such
    that may break."""
    beside = {(finding.path, finding.scope, finding.target): finding.line for finding in findings}
    for_good = [one for one in findings if not (one.in_test or one.temporary or one.confidence == "possible")]
    bare = [finding for finding in for_good if not finding.hands_on or finding.target.endswith(".__init__")]
    replaced = {name: finding for finding in bare for name in finding.touches or (finding.target,)}
    patched = {finding.target for finding in for_good}

    def said(one: Finding) -> str:
        if instead := judged(one.path).runs_instead(one.fails):
            return f"what runs here is {instead}, and may do so or not"
        return _caller(one, given, beside, replaced) or _asked(one, replaced) or _of_config(one, given, patched)

    def marked(one: Finding) -> Finding:
        if why := said(one):
            told = replace(one.assessment, overridden=why)
            return replace(_saying(one, why), effect="may_break", assessment=told)
        return _saying(one, _replaced(one, beside))  # the rest of what breaks it does so all the same

    return [marked(finding) if finding.effect == "breaks" else finding for finding in findings]


def _saying(finding: Finding, said: str) -> Finding:
    """A finding with one more thing that is said of what breaks it."""
    message = finding.message.replace(last := finding.breaks[-1], f"{last}; {said}")
    return replace(finding, breaks=(*finding.breaks, said), message=message) if said else finding


def _replaced(finding: Finding, beside: dict[tuple[str, str, str], int], every: bool = False) -> str:
    """What the code beside a patch puts in place of a class whose call breaks it, or of all of them."""
    owners = [caller.rpartition(".")[0] for caller in finding.callers]
    lines = [beside.get((finding.path, finding.scope, owner)) if owner else None for owner in owners]
    first = next((index for index, line in enumerate(lines) if line), None)
    if first is None or (every and not all(lines)):
        return ""
    return f"line {lines[first]} puts another class in place of `{leaf(owners[first])}`, which may be all that runs"


def _caller(
    finding: Finding,
    given: Callable[[], HandedOver],
    beside: dict[tuple[str, str, str], int],
    replaced: dict[str, Finding],
) -> str:
    """What may run in place of the callers that break it."""
    if (said := _replaced(finding, beside, every=True)) or not finding.callers or not all(map(within, finding.callers)):
        return said
    names = [caller.rpartition(".")[::2] for caller in finding.callers]
    own = f"a subclass of `{leaf(names[0][0])}` here has its own `{names[0][1]}`, which may be all that runs"
    if all(given().shuts_out(*name) for name in names):
        return own
    others = [replaced.get(caller, finding) for caller in finding.callers]
    if any(one.target == finding.target or one.shape in ON_OBJECTS for one in others):
        return ""
    return f"{_where(finding.callers[0], finding, replaced)}, which may be all that runs"


def _asked(finding: Finding, replaced: dict[str, Finding]) -> str:
    """What may be in place of what it asks for, by itself or with its class or module."""
    reached = []
    for asked in finding.asked:
        name = found.name if (found := api.lookup(asked)) is not None else asked
        owner = name.rpartition(".")[0]
        # Of a module, and of a function of its name, only the way tells which one is replaced.
        whole = owner in replaced and (leaf(owner)[:1].isupper() or replaced[owner].shape == "sys-modules")
        made = f"{name}.__init__"
        reached.append(
            next((way for way in (asked, name, made) if way in replaced), owner if whole else finding.target)
        )
    if not reached or finding.target in reached:
        return ""
    return f"{_where(reached[0], finding, replaced)}, which may be what is reached"


def _where(name: str, finding: Finding, replaced: dict[str, Finding]) -> str:
    """Where a name is replaced that a finding has to do with."""
    other = replaced[name]
    where = f"line {other.line}" if other.path == finding.path else f"{other.path}:{other.line}"
    shown = ".".join(name.split(".")[-2:]) if leaf(name.rpartition(".")[0])[:1].isupper() else leaf(name)
    return f"{where} {'changes' if other.touches else 'replaces'} `{shown}`"


def _of_config(finding: Finding, given: Callable[[], HandedOver], patched: set[str]) -> str:
    """What may give a config the fields that it asks for: a class of the repository's own, or a patched constructor."""
    fields = [name.rpartition(".")[::2] for name in finding.asked]
    if not fields or any(CONFIG not in (owner, *api.ancestry(owner)) for owner, _ in fields):
        return ""
    owner, field = fields[0]
    if any(f"{cls}.{made}" in patched for cls in (owner, CONFIG) for made in ("__init__", "__post_init__")):
        return f"the constructor of `{owner.rpartition('.')[2]}` is patched too, which may set it"
    own = all(any(given().replaces(ancestor, name) for ancestor in (of, *api.ancestry(of))) for of, name in fields)
    return f"a config here has its own `{field}`, which may be what is read" if own else ""
