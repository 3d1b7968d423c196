"""What a mutation run found, as lines, as data and as a table for the docs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tools.mutation.faults import Fault
from tools.mutation.sample import AREAS, found_again, sources
from tools.mutation.trial import Result

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
    }


def from_json(row: dict[str, Any]) -> Result:
    """A result of an earlier run; its fault has no place, unless the source still has those lines."""
    gone = Fault(row["path"], row["line"], row["line"], 0, 0, row["before"], row["after"], row["kind"], row["shown"])
    return Result(found_again(row) or gone, row["noticed_by"], row["tried"], row["said"])


def table(results: list[Result]) -> str:
    """Noticed and tried by area, as Markdown; a survivor that changes nothing a user could see is explained by hand."""
    explained = _explained()
    rows = ["| area | faults | noticed | no fault at all | not noticed |", "|---|---|---|---|---|"]
    for area in AREAS:
        own = set(sources(area))
        mine = [result for result in results if result.fault.path in own and result.tried is not None]
        if not mine:
            continue
        noticed = sum(result.noticed_by is not None for result in mine)
        harmless = sum(
            result.noticed_by is None and (result.fault.path, result.fault.shown) in explained for result in mine
        )
        rows.append(f"| {area} | {len(mine)} | {noticed} | {harmless} | {len(mine) - noticed - harmless} |")
    return "\n".join(rows)


def _explained() -> set[tuple[str, str]]:
    if not EXPLAINED.exists():
        return set()
    entries = tomllib.loads(EXPLAINED.read_text())["fault"]
    return {(entry["path"], entry["shown"]) for entry in entries}


def _shortened(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else f"{flat[:57]}..."
