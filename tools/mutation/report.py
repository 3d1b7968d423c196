"""What a mutation run found, as lines, as data and as a table for the docs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tools.mutation.faults import Fault
from tools.mutation.sample import AREAS, found_again, sources
from tools.mutation.trial import LATE, UNREACHED, Result
from tools.mutation.typed import MYPY

EXPLAINED = Path(__file__).parent / "explained.toml"


def line(result: Result) -> str:
    """One fault in one line."""
    fault = result.fault
    what = f"{fault.path}:{fault.line} {fault.kind}: {_shortened(fault.before)} -> {_shortened(fault.text)}"
    if result.noticed_by:
        return f"noticed   {what}  ({result.noticed_by})"
    return f"SURVIVED  {what}  ({', '.join(filter(None, (f'{result.tried} tests', result.said)))})"


def as_json(result: Result) -> dict[str, Any]:
    """One fault as data."""
    fault = result.fault
    return {
        "path": fault.path,
        "line": fault.line,
        "kind": fault.kind,
        "before": fault.before,
        "after": fault.text,
        "shown": fault.shown,
        "noticed_by": result.noticed_by,
        "tried": result.tried,
        "said": result.said,
        "seconds": round(result.seconds, 1),
    }


def from_json(row: dict[str, Any]) -> Result:
    """A result of an earlier run; its fault has no place, unless the source still has those lines."""
    gone = Fault(row["path"], row["line"], row["line"], 0, 0, row["before"], row["after"], row["kind"], row["shown"])
    return Result(found_again(row) or gone, row["noticed_by"], row["tried"], row["said"], row.get("seconds", 0.0))


def table(results: list[Result]) -> str:
    """Noticed and tried by area, as Markdown; a survivor that changes nothing a user could see is explained by hand."""
    explained = _explained()
    heads = (
        "area",
        "faults",
        "by a test",
        "by its types",
        "no fault at all",
        "no test runs it",
        "time was up",
        "noticed by none",
    )
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    totals = [0] * (len(heads) - 1)
    for area in AREAS:
        own = set(sources(area))
        mine = [result for result in results if result.fault.path in own and result.tried is not None]
        survivors = [result for result in mine if result.noticed_by is None]
        real = [result for result in survivors if (result.fault.path, result.fault.shown) not in explained]
        unreached = sum(result.said == UNREACHED for result in real)
        late = sum(result.said == LATE for result in real)
        typed = sum(result.noticed_by == MYPY for result in mine)
        tested = len(mine) - len(survivors) - typed
        counts = [len(mine), tested, typed, len(survivors) - len(real), unreached, late]
        counts.append(len(real) - unreached - late)
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        if mine:
            rows.append(f"| {area} | {' | '.join(map(str, counts))} |")
    rows.append(f"| all | {' | '.join(map(str, totals))} |")
    tested, noticed = (number / max(1, totals[0] - totals[3]) for number in (totals[1], totals[1] + totals[2]))
    taken = sum(result.seconds for result in results) / 60
    return "\n".join(
        [
            *rows,
            "",
            f"{noticed:.0%} of the faults were noticed, {tested:.0%} by a test; {taken:.0f} minutes of one bench.",
        ]
    )


def _explained() -> set[tuple[str, str]]:
    if not EXPLAINED.exists():
        return set()
    entries = tomllib.loads(EXPLAINED.read_text())["fault"]
    return {(entry["path"], entry["shown"]) for entry in entries}


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."
