"""What a report of `unpatch upgrade` says about a case, held to the fate that was seen."""

import re
from collections import Counter
from typing import Any

AGREES = "agrees"
# The worst first: a patch that raises or changes and is said to be fine costs a training run.
VERDICTS = (
    "false harmless: raises",
    "false harmless: changes",
    "not reported: raises",
    "not reported: changes",
    "said to change, raises",
    "said to raise, changes",
    "another exception",
    "false alarm: said to raise",
    "false alarm: said to change",
    AGREES,
)
_EXCEPTION = re.compile(r"\b[A-Z][A-Za-z]*Error\b")


def agrees(fate: dict[str, Any], report: dict[str, Any]) -> str:
    """AGREES, or what is wrong with what the report says about the case of `fate`, at its line.

    Raises on the newer release: a finding at the line says so, and names the exception. Values changed: a finding says
    so, and names no exception. Values the same: no finding says that it raises, and none that it changes.
    """
    file = f"{fate['case']}.py"
    findings = [patch for patch in report["patches"] if patch["path"] == file and _is_meant(fate, patch)]
    raising = {name for patch in findings for reason in patch["reasons"] for name in _EXCEPTION.findall(reason)}
    changing = any(patch["urgency"] in ("breaks", "different") for patch in findings)
    silent = "false harmless" if findings else "not reported"
    if fate["newer"]["outcome"] == "raises":
        if not raising:
            return "said to change, raises" if changing else f"{silent}: raises"
        return AGREES if fate["newer"]["exception"] in raising else "another exception"
    if fate["values"] == "changed":
        if raising:
            return "said to raise, changes"
        return AGREES if changing else f"{silent}: changes"
    if raising:
        return "false alarm: said to raise"
    return "false alarm: said to change" if changing else AGREES


def _is_meant(fate: dict[str, Any], patch: dict[str, Any]) -> bool:
    """At the line of the fate; a registry has two places for one patch, and either may be named with its target."""
    by_target = fate["kind"] == "registry" and patch["target"] == fate["target"]
    return bool(patch["line"] == fate["line"] or by_target)


def table(verdicts: list[tuple[dict[str, Any], str]]) -> str:
    """Agreement by kind."""
    columns = ("false harmless", "not reported", "false alarm")
    lines = [f"{'kind':<16}{'fates':>6}{'agree':>6}" + "".join(f"{column:>16}" for column in columns)]
    kinds = sorted({fate["kind"] for fate, _ in verdicts})
    for kind in [*kinds, "all"]:
        counts = Counter(verdict for fate, verdict in verdicts if kind in (fate["kind"], "all"))
        wrongs = [sum(n for verdict, n in counts.items() if verdict.startswith(column)) for column in columns]
        lines.append(f"{kind:<16}{counts.total():>6}{counts[AGREES]:>6}" + "".join(f"{n:>16}" for n in wrongs))
    return "\n".join(lines)


def disagreements(verdicts: list[tuple[dict[str, Any], str]]) -> str:
    """Each of them, the worst first."""
    wrong = sorted((VERDICTS.index(v), fate["case"], fate["from"], fate["to"]) for fate, v in verdicts if v != AGREES)
    return "\n".join(f"{VERDICTS[rank]:<28} {case} {older} -> {newer}" for rank, case, older, newer in wrong)
