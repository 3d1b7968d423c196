"""What an audit found, as one value: for people, as JSON, compared between ranks, and joined with what `scan` reads."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_unpatch.audit.origin import CodeOrigin
from mcore_unpatch.errors import UsageError
from mcore_unpatch.records import asdict, dataclass, field, record
from mcore_unpatch.repository import reading

if TYPE_CHECKING:
    from mcore_unpatch.findings.finding import Finding

VERSION = 1
_WORDS = {
    "method": "is rebound",
    "function": "is rebound",
    "class": "is another class",
    "imported": "is rebound in this module",
    "added": "was added",
    "instance": "is bound over on instances",
    "submodule": "is another module than the constructor makes",
    "module": "is another module than the installed one",
}


@record
class Deviation:
    """One name that is not what the installed wheel defines.

    kind: method, function, class, imported (a name that a module imports), added, stale (another module still holds the
    original), module (another one in `sys.modules`), instance (bound over on objects), submodule (another than the
    constructor makes), file (of the installed wheel).
    order: where wrappers lie around each other, the replacements in the order in which they were made.
    of: the rebound name that a stale copy is of. where: the modules of the model, by path.
    """

    kind: str
    name: str
    by: CodeOrigin
    order: tuple[CodeOrigin, ...] = ()
    of: str = ""
    where: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == "stale":
            return f"{self.name} still holds the original of {self.of}, which is rebound"
        if self.kind == "file":
            return f"{self.name} {self.by.name}"
        said = f"{self.name} {_WORDS[self.kind]}"
        if self.where:
            said += f" ({len(self.where)}: {self.where[0]}{', ...' if len(self.where) > 1 else ''})"
        said += f", by {self.by}"
        if self.order:
            said += f"; in this order: {', then '.join(map(str, self.order))}"
        return said

    @property
    def key(self) -> str:
        """What two ranks are compared by: what is replaced, where in the model, and by which code."""
        return " ".join([self.kind, self.name, self.by.name, *self.where])


@record
class ModelHook:
    """A hook that somebody registered on a module of the model."""

    path: str
    kind: str
    by: CodeOrigin

    def __str__(self) -> str:
        return f"{self.path or 'the model itself'}: {self.kind}, by {self.by}"


@record
class Rebinding:
    """One rebinding that `watch` saw: when, by what, and on which stack, innermost line first."""

    name: str
    by: CodeOrigin
    moment: str
    stack: tuple[str, ...] = ()

    def __str__(self) -> str:
        line = self.stack[0] if self.stack else self.moment
        return f"{self.name}: rebound at {line}, to {self.by}"


@dataclass(slots=True)
class AuditReport:
    """What one process says of its Megatron. `deviations` is empty on a clean one; hooks are no deviation."""

    release: str = ""
    rank: str = ""
    deviations: list[Deviation] = field(default_factory=list)
    hooks: list[ModelHook] = field(default_factory=list)
    rebindings: list[Rebinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether something is not what the wheel defines."""
        return bool(self.deviations)

    def __str__(self) -> str:
        """The report for people."""
        name = f"megatron-core {self.release}" if self.release else "Megatron Core"
        count = len(self.deviations)
        head = f"{count} deviation{'s' if count != 1 else ''} from {name}" if count else f"{name} is what it says"
        lines = [f"{head}{f' on {self.rank}' if self.rank else ''}.", *(f"  {one}" for one in self.deviations)]
        for title, rows in (("Hooks on the model", self.hooks), ("Rebindings, in order", self.rebindings)):
            lines += [title, *(f"  {row}" for row in rows)] if rows else []
        return "\n".join([*lines, *(f"note: {line}" for line in self.notes)])

    def to_json(self) -> dict[str, Any]:
        """The interface for machines, version 1."""
        return {"version": VERSION, **asdict(self)}

    def save(self, folder: Path | str) -> Path:
        """Write `audit.<rank>.json` into a folder, whole or not at all; returns the file."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        file = target / f"audit.{self.rank or 'process'}.json"
        reading.replace_file(file, json.dumps(self.to_json(), indent=2) + "\n")
        return file


def load(file: Path) -> AuditReport:
    """Read a report again; raises `UsageError` for anything else."""
    try:
        data = json.loads(reading.read(file))
        if data.pop("version") != VERSION:
            raise ValueError("another version")
        kinds = {"deviations": Deviation, "hooks": ModelHook, "rebindings": Rebinding}
        lists: dict[str, Any] = {key: [_read(kind, row) for row in data[key]] for key, kind in kinds.items()}
        return AuditReport(**{**data, **lists})
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{file} is not a report of `unpatch audit`, version {VERSION}.") from None


def _read(kind: type, row: dict[str, Any]) -> Any:
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    values["by"] = CodeOrigin(**row["by"])
    if "order" in row:
        values["order"] = tuple(CodeOrigin(**origin) for origin in row["order"])
    return kind(**values)


def this_rank() -> str:
    """A name for this process: its rank where a launcher says one, else host and process id."""
    if rank := os.environ.get("RANK"):
        return f"rank{rank}"
    return f"{socket.gethostname()}-{os.getpid()}"


def differences(reports: Sequence[tuple[str, AuditReport]]) -> list[tuple[str, list[str], list[str]]]:
    """Each deviation that only some of the reports have: what it is, who has it, who has not."""
    told: dict[str, tuple[str, list[str]]] = {}
    for label, report in reports:
        facts = [(deviation.key, str(deviation)) for deviation in report.deviations]
        if report.release:
            facts.append((f"release {report.release}", f"megatron-core {report.release} is installed"))
        for key, said in facts:
            holders = told.setdefault(key, (said, []))[1]
            holders += [label] if label not in holders else []
    everyone = [label for label, _ in reports]
    rows = ((said, holders, [label for label in everyone if label not in holders]) for said, holders in told.values())
    return [row for row in rows if row[2]]


@record
class LivePatch:
    """A live patch, the line of the repository that made it, or the package that it comes from, and on which ranks."""

    deviation: Deviation
    ranks: tuple[str, ...]
    line: str = ""
    rule: str = ""
    package: str = ""

    def __str__(self) -> str:
        if self.line:
            return f"made by {self.line}{f' ({self.rule})' if self.rule else ''}"
        return f"no line of this repository: it comes from {self.package or self.deviation.by.file or 'elsewhere'}"


def join(
    reports: Sequence[AuditReport], findings: Sequence[Finding], root: Path
) -> tuple[list[LivePatch], list[Finding]]:
    """Each live patch with its line or package; and the patches that `scan` finds and that never ran."""
    by_key: dict[str, list[tuple[Deviation, AuditReport]]] = {}
    for report in reports:
        for told in report.deviations:
            by_key.setdefault(told.key, []).append((told, report))
    live = []
    for holders in by_key.values():
        deviation = holders[0][0]
        ranks = tuple(dict.fromkeys(report.rank for _, report in holders))
        if deviation.kind in ("stale", "file"):
            live.append(LivePatch(deviation, ranks))
            continue
        stacks = [r.stack for _, report in holders for r in report.rebindings if r.name == deviation.name]
        live.append(_joined(deviation, ranks, findings, root, [line for stack in stacks for line in stack]))
    seen = {patch.deviation.name for patch in live} | {r.name for report in reports for r in report.rebindings}
    return live, [finding for finding in findings if finding.target not in seen]


def _joined(
    deviation: Deviation, ranks: tuple[str, ...], findings: Sequence[Finding], root: Path, stack: list[str]
) -> LivePatch:
    about = [finding for finding in findings if finding.target == deviation.name]
    for finding in about:
        path = f"{root / finding.path}:"
        lines = (int(line.removeprefix(path).partition(" ")[0]) for line in stack if line.startswith(path))
        if any(finding.line <= number <= finding.end_line for number in lines):
            return LivePatch(deviation, ranks, f"{finding.path}:{finding.line}", finding.rule)
    inside = [origin for origin in (deviation.by, *deviation.order) if Path(origin.file).is_relative_to(root)]
    if about and (inside or (len(about) == 1 and not deviation.by.package)):
        return LivePatch(deviation, ranks, f"{about[0].path}:{about[0].line}", about[0].rule)
    if inside:
        line = f"{Path(inside[0].file).relative_to(root)}:{inside[0].line}"
        return LivePatch(deviation, ranks, line)
    return LivePatch(deviation, ranks, package=deviation.by.package)
