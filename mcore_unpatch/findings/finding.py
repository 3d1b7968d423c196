"""The value a scan produces: one finding per patch, with the lines that belong to it. `say.findings` has the words."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch.effects.records import Effect
from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict
from mcore_unpatch.errors import FileError
from mcore_unpatch.megatron.answers import Answer, answer_named
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version, releases_of
from mcore_unpatch.patches.records import Guard
from mcore_unpatch.records import dataclass, field, record
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
PIN = "pin"  # one that does not hold
PATCH_FILE = "patch-file"
NO_PATCHES = (*DOWNSTREAM, *OWN_MODELS, OFFER, SWITCH)

MOVES, GOES, BY_HAND, STAYS, DONE = map(str, (Fate.MOVES, Fate.GOES, Fate.BY_HAND, Fate.STAYS, Fate.DONE))


@dataclass(frozen=True, slots=True, order=True)
class Related:
    """A line that belongs to a patch: its backup or restore."""

    line: int
    role: str


class Act(StrEnum):
    """Kinds of change that a patch makes to a name."""

    REPLACES = "replaces"
    REMOVES = "removes"
    ADDS = "adds"
    SWAPS = "swaps"  # a part of a model
    ALTERS = "alters"  # a part of a function: its code, its defaults


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


def _specifier(first: int, last: int) -> str:
    if first == len(RELEASES):
        return f">{RELEASES[-1]}"
    if first == last:
        return f"=={RELEASES[first]}"
    above = [f">={RELEASES[first]}"] if first else []
    return ",".join([*above, f"<={RELEASES[last]}"] if last < len(RELEASES) else above)


@record
class OnRelease:
    """How a patch fares on one release it is judged for: `runs`, `breaks` or `never runs`; and what becomes of it."""

    release: str
    outcome: str
    fate: Fate


@record
class OnStacks:
    """Stacks of the repository on which a patch fares alike; of a range one row for each of its releases."""

    stacks: tuple[str, ...]
    on: tuple[OnRelease, ...]

    @property
    def outcome(self) -> str:
        """What happens there."""
        return self.on[0].outcome if len({one.outcome for one in self.on}) == 1 else "depends on the release"

    @property
    def verdict(self) -> str:
        """What becomes of it there; where that depends on the release, the least."""
        return str(max((one.fate for one in self.on), key=list(Fate).index))


@record
class Assessment:
    """What became of a finding beyond what its finder said, and why."""

    settled: Verdict | None = None  # in place of the finder's own verdict
    on_stacks: tuple[OnStacks, ...] = ()  # where the stacks of the repository differ
    fix: str | None = None  # what `migrate` does about it: `safe`, `unsafe`; None where nobody asked, or nothing
    left_because: str = ""  # why `migrate` leaves it, where a codemod has a way


@dataclass(frozen=True, slots=True)
class Finding:
    """One patch of Megatron Core: the facts, and the assessment of them."""

    rule: str
    path: str
    line: int
    column: int
    end_line: int
    target: str
    shape: str
    message: str = ""  # what a finder says of what is no patch
    seam: str = "none"
    confidence: str = "certain"
    temporary: bool = False
    way: str = ""  # what to do in its place, where no row of answers says it
    related: tuple[Related, ...] = ()
    in_test: bool = False
    live: Live = Live()
    own: Verdict = Verdict()  # of the finder
    by_hand: tuple[str, ...] = ()  # steps, where no row of answers has them
    words: tuple[tuple[str, str], ...] = ()  # what the row of answers says of this place
    act: Act = Act.REPLACES
    effects: tuple[Effect, ...] = ()  # what the releases do to it
    outcomes: tuple[OnRelease, ...] = ()
    gain: str = ""  # what it does now that it did not do before a change
    installed_by: str = ""  # the function that has to be called for the patch to be made
    scope: str = ""  # the qualified name of the function or class around it; empty in a module
    fallback: str = ""  # what is imported first: the place runs only where that is not there
    touches: tuple[str, ...] = ()  # the definitions that a patch file changes
    # The source lines of the finding: quoted in text output, compared when lines have moved.
    source: str = field(default="", compare=False)
    assessment: Assessment = field(default=Assessment(), compare=False)
    upstream: str = field(default="", compare=False)  # of a pin that does not hold: what Megatron changed, as a diff

    @property
    def judgement(self) -> Verdict:
        """What becomes of it, and why."""
        told = self.assessment.settled or self.own
        return Verdict(Fate.MOVES, told.reason, told.row) if self.fix and self._moves(told) else told

    def _moves(self, told: Verdict) -> bool:
        """Whether what `migrate` does is a rewrite: what is to go is deleted, and what is off is left."""
        runs = not self.outcomes or any(one.outcome != NEVER_RUNS for one in self.outcomes)
        settled = told.fate in (Fate.GOES, Fate.DONE) or told.reason == Reason.OTHER_PACKAGE
        return not settled and (runs or not self.live.releases)

    @property
    def verdict(self) -> str:
        """What becomes of it: `moves`, `goes`, `by hand`, `stays` or `done`."""
        return str(self.judgement.fate)

    @property
    def fix(self) -> str | None:
        """Whether `migrate` does it: `safe`, `unsafe`, or not."""
        return self.assessment.fix

    @property
    def effect(self) -> str:
        """What the judged releases do to it: `breaks`, or `changes` without an error."""
        if any(one.raises for one in self.effects):
            return "breaks"
        return "changes" if any(one.differs or one.is_idle for one in self.effects) else ""

    @property
    def fails(self) -> tuple[str, ...]:
        """The judged releases on which it raises."""
        return tuple(one.release for one in self.outcomes if one.outcome == BREAKS)

    @property
    def affected(self) -> tuple[str, ...]:
        """The judged releases that do something to it."""
        on = {release for one in self.effects for release in one.releases}
        return tuple(one.release for one in self.outcomes if one.release in on)

    @property
    def answer(self) -> str:
        """The name of the row of what is known of Megatron that speaks for it."""
        return self.own.row

    @property
    def row(self) -> Answer | None:
        """That row."""
        return answer_named(self.own.row)

    @property
    def replacement(self) -> str | None:
        """What there is in its place, whatever becomes of it."""
        row = self.row
        return self.way or (row.way.format(**dict(self.words)) if row is not None else None)

    @property
    def steps(self) -> tuple[str, ...]:
        """How a person moves it there."""
        row = self.row
        steps = self.by_hand or (tuple(step.format(**dict(self.words)) for step in row.steps) if row else ())
        return (*steps, _AND_BACK) if steps and self.temporary else steps

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
        return self.replacement if self.verdict in {MOVES, BY_HAND} else None

    @property
    def sort_key(self) -> tuple[str, int, int, str]:
        """Order within a report: by file, then by position."""
        return (self.path, self.line, self.column, self.target)


_AND_BACK = "Take it off again where the original is put back."
RUNS, BREAKS, NEVER_RUNS = "runs", "breaks", "never runs"


def switched_off(path: str, line: int, column: int, source: str, what: str, in_test: bool = False) -> Finding:
    """Something of the gate that a change switches off."""
    place = (path, line, column, line)
    message = f"this change also switches off {what}"
    return Finding("MCU805", *place, "", SWITCH, message, in_test=in_test, source=source)


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
    in_tests: int = 0  # places in tests that patch Megatron, which are not judged
    only: str = ""  # where known findings were left out, what the others are: new, or unpinned
    done: list[Finding] = field(default_factory=list)  # the official way stands beside them already
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
