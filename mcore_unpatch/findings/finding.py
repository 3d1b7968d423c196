"""The value a scan produces: one finding per patch, with the lines that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_unpatch.errors import FileError
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version, releases_of
from mcore_unpatch.records import asdict, dataclass, field, record
from mcore_unpatch.repository.paths import from_here, relative

if TYPE_CHECKING:
    from mcore_unpatch.stacks.revision import Judged

# The shapes of findings that are no patch themselves: a use of a downstream's patch, or its definition.
DOWNSTREAM = USE, DEFINITION = ("downstream-use", "downstream-definition")
# And a model of the repository's own that keeps the hook from arriving.
OWN_MODELS = SUBCLASS, WRAPPER = ("subclass", "wrapper")
# And code with which nothing is wrong, that a shim can do better.
OFFER = "offer"
# And what a change switches off of the gate.
SWITCH = "switch"
_SHOWN_STACKS = 4  # in one line
NO_PATCHES = (*DOWNSTREAM, *OWN_MODELS, OFFER, SWITCH)


@dataclass(frozen=True, slots=True, order=True)
class Related:
    """A line that belongs to a patch: its backup or restore."""

    line: int
    role: str


@record
class Guard:
    """A statement that keeps a patch from being installed on some releases, and the branch of it the patch stands in.

    branch: `if` or `else` of a test, `try`, `except` or `else` of a try, `after` a statement that leaves before it,
    `call` where the function around the patch is called.
    """

    line: int
    end_line: int
    branch: str
    rules_out: tuple[str, ...]
    path: str = ""  # of another file
    always: bool = False  # it asks for no release: `if False:`


@record
class Live:
    """The releases on which a patch is installed, and what it depends on besides them."""

    releases: tuple[str, ...] = RELEASES
    newer: bool = True  # also on releases that are not known yet
    depends: tuple[str, ...] = ()  # conditions that no release decides: `only if ...`, in words
    guards: tuple[Guard, ...] = ()

    def on(self, version: Version) -> bool:
        """Whether the patch runs on a release, or on some release of a minor version."""
        known = releases_of(version)
        if not known and version < parse_version(RELEASES[0]):
            known = RELEASES[:1]  # the oldest speaks for what was before it
        return any(release in self.releases for release in known) if known else self.newer

    def __str__(self) -> str:
        """As version specifiers: `any`, `none`, `<=0.12.3`, `>=0.13.0,<=0.16.1 or >0.19.2`."""
        points = [*(release in self.releases for release in RELEASES), self.newer]
        if all(points) or not any(points):
            return "any" if points[0] else "none"
        runs = [list(run) for alive, run in groupby(range(len(points)), key=points.__getitem__) if alive]
        return " or ".join(_specifier(run[0], run[-1]) for run in runs)

    @property
    def elsewhere(self) -> str:
        """Where it runs, behind where it does not; what no known release has, an older or a newer one may have."""
        return f", only on {self}" if self.releases else ""


def _specifier(first: int, last: int) -> str:
    if first == len(RELEASES):
        return f">{RELEASES[-1]}"
    if first == last:
        return f"=={RELEASES[first]}"
    above = [f">={RELEASES[first]}"] if first else []
    return ",".join([*above, f"<={RELEASES[last]}"] if last < len(RELEASES) else above)


@record
class OnStacks:
    """Stacks of the repository on which a patch fares alike: whether it runs or breaks there, and the verdict."""

    stacks: tuple[str, ...]
    outcome: str
    verdict: str

    def __str__(self) -> str:
        more = len(self.stacks) - _SHOWN_STACKS
        names = ", ".join(self.stacks[:_SHOWN_STACKS]) + (f" and {more} more" if more > 0 else "")
        return f"{names}: {self.outcome}, so {self.verdict}"


@dataclass(frozen=True, slots=True)
class Assessment:
    """What becomes of a finding on the releases it is judged for, and why."""

    verdict: str = "keep"
    evidence: str = ""
    waits_for: str = ""  # the release with the official way, where an older one is judged for
    is_read: bool = False  # by the repository, though Megatron no longer has it
    overridden: str = ""  # what may be in place of what raises, as a sentence
    on_stacks: tuple[OnStacks, ...] = ()  # where the stacks of the repository differ
    fix: str | None = None  # what `migrate` does about it: `safe`, `unsafe`; None where nobody asked, or nothing
    left_because: str = ""  # why `migrate` leaves it, where a codemod has a way


@dataclass(frozen=True, slots=True)
class Finding:
    """One patch of Megatron Core: the facts, and the assessment of them. `to_json` gives the interface, version 1."""

    rule: str
    path: str
    line: int
    column: int
    end_line: int
    target: str
    shape: str
    message: str
    seam: str = "none"
    confidence: str = "certain"
    temporary: bool = False
    replacement: str | None = None
    related: tuple[Related, ...] = ()
    in_test: bool = False
    live: Live = Live()
    answer: str = ""  # the row of what is known of Megatron that speaks for it
    steps: tuple[str, ...] = ()
    installed_by: str = ""  # the function that has to be called for the patch to be made
    scope: str = ""  # the qualified name of the function or class around it; empty in a module
    breaks: tuple[str, ...] = ()  # what of the message is judged for a release
    effect: str = ""  # what that release does to it: `breaks`, `may_break`, or `changes` without an error
    fails: tuple[str, ...] = ()  # the judged releases on which it raises
    callers: tuple[str, ...] = ()  # the functions whose calls raise, of Megatron's and of the repository's own
    asked: tuple[str, ...] = ()  # what of Megatron's is used in a way that raises, where nothing else does
    affected: tuple[str, ...] = ()  # those that do something to it
    fallback: str = ""  # what is imported first: the place runs only where that is not there
    upstream_has: str = ""  # where Megatron already has what it does
    hands_on: bool = False  # it calls what it replaces
    patches_more: bool = False  # the statement patches other modules too, of which less is known
    kept_because: str = ""  # why a change of Megatron's source is kept, where nothing is promised
    touches: tuple[str, ...] = ()  # the definitions that a patch file changes
    # The source lines of the finding: quoted in text output, compared when lines have moved.
    source: str = field(default="", compare=False)
    assessment: Assessment = field(default=Assessment(), compare=False)
    upstream: str = field(default="", compare=False)  # of a pin that does not hold: what Megatron changed, as a diff

    @property
    def verdict(self) -> str:
        """What becomes of it: `rewrite`, `delete`, `steps`, `keep` or `done`."""
        return self.assessment.verdict

    @property
    def evidence(self) -> str:
        """Why: one sentence or two."""
        return self.assessment.evidence

    @property
    def fix(self) -> str | None:
        """Whether `migrate` does it: `safe`, `unsafe`, or not."""
        return self.assessment.fix

    @property
    def where(self) -> str:
        """The file and what is around it there, `a/b.py::Model.install`: moved lines do not matter."""
        return f"{self.path}::{self.scope}" if self.scope else self.path

    @property
    def subject(self) -> str:
        """What is replaced, for people: of an object whose class is not known the name alone."""
        return f"*.{self.target.rpartition('.')[2]}" if self.confidence == "possible" else self.target

    @property
    def can_move(self) -> bool:
        """Whether there is an official seam that a codemod may know a way to."""
        return self.seam != "none"

    @property
    def can_be_pinned(self) -> bool:
        """Whether it is a patch of one name: not of a file, not a use of a patch."""
        return bool(self.target) and self.shape not in NO_PATCHES and not self.touches

    @property
    def instead(self) -> str | None:
        """What to do in its place, where there is something to do."""
        return self.replacement if self.verdict in {"rewrite", "steps"} else None

    def to_json(self) -> dict[str, Any]:
        """The finding as plain data."""
        data: dict[str, Any] = {name: getattr(self, name) for name in JSON_FIELDS} | {"replacement": self.instead}
        data["live"], data["depends"] = str(self.live), list(self.live.depends)
        data["verdict"], data["evidence"] = self.verdict, self.evidence
        data["steps"] = list(self.steps) if self.verdict == "steps" else []
        data["related"] = [{"line": item.line, "role": item.role} for item in self.related]
        if self.touches:
            data["touches"] = list(self.touches)
        if self.upstream:
            data["upstream"] = self.upstream
        if on_stacks := self.assessment.on_stacks:
            data["stacks"] = [{**asdict(group), "stacks": list(group.stacks)} for group in on_stacks]
        return data

    @property
    def sort_key(self) -> tuple[str, int, int, str]:
        """Order within a report: by file, then by position."""
        return (self.path, self.line, self.column, self.target)


def switched_off(path: str, line: int, column: int, source: str, what: str, in_test: bool = False) -> Finding:
    """Something of the gate that a change switches off."""
    message = f"this change also switches off {what}"
    told = Assessment(evidence="Review it as you review code; `--ignore MCU805` accepts it.")
    place = (path, line, column, line)
    return Finding("MCU805", *place, "", SWITCH, message, in_test=in_test, source=source, assessment=told)


_TOLD = ("rule", "path", "line", "column", "end_line", "target", "shape", "seam", "confidence", "temporary", "in_test")
JSON_FIELDS = (*_TOLD, "fix", "message", "replacement")


@dataclass(slots=True)
class Report:
    """The result of one scan; paths are relative to `root`, and `top` is the root of the repository around it."""

    root: str
    files_scanned: int = 0
    findings: list[Finding] = field(default_factory=list)
    errors: list[FileError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    top: str = ""
    named: tuple[str, ...] = ()  # the paths that the user named
    fixes_known: bool = False  # the codemods were asked what they would do
    proposed: Callable[[], dict[str, str]] = dict  # the diffs of what `migrate` could do, by path
    only: str = ""  # where known findings were left out, what the others are: new, or unpinned
    done: list[Finding] = field(default_factory=list)  # the official way stands beside them already
    possible: int = 0  # patches told by the name of a method alone, that nobody asked for
    carried: tuple[str, ...] = ()  # the folders of Megatrons that are part of the repository

    def say_what_is_carried(self, option: str) -> None:
        """Note the Megatrons that are part of the repository, and the option that reads one as it is."""
        for folder in self.carried[:1]:
            more = f", and {len(self.carried) - 1} more" if len(self.carried) > 1 else ""
            place = Path(folder, "megatron/core").as_posix()
            said = f"This repository has a megatron.core of its own, in {place}{more}. Where that was edited, its "
            self.notes.append(f"{said}release does not speak for it: `{option} {folder}` reads it as it is.")

    def from_here(self, path: str) -> str:
        """A path for people: relative to where they stand."""
        return from_here(Path(self.root, path))

    def from_top(self, path: str) -> str:
        """A path for services that know the repository: relative to its root."""
        return relative(Path(self.root, path), Path(self.top or self.root))

    def to_json(self) -> dict[str, Any]:
        """The report as plain data, version 1."""
        return {
            "version": 1,
            "root": self.root,
            "files_scanned": self.files_scanned,
            "judged": [judged.to_json() for judged in self.judged],
            "findings": [finding.to_json() for finding in self.findings],
            "done": [finding.to_json() for finding in self.done],
            "errors": [{"path": error.path, "message": error.message} for error in self.errors],
        }
