"""One upgrade report: what each Megatron does to every patch and to every other use of it in a repository."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mcore_unpatch.code.index import is_test
from mcore_unpatch.code.module import Module, scope_of
from mcore_unpatch.code.syntax import NAMED_FUNCTIONS, walk
from mcore_unpatch.effects.copies import copy_of
from mcore_unpatch.effects.other_model import Elsewhere, OnOther
from mcore_unpatch.effects.records import Effect, Outcome
from mcore_unpatch.findings.finding import DONE, NO_PATCHES, PATCH_FILE, Finding, Report
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.megatron import packed
from mcore_unpatch.megatron.hybrid import HYBRID
from mcore_unpatch.megatron.megatrons import Megatrons
from mcore_unpatch.patches.records import Patch
from mcore_unpatch.records import record, replace
from mcore_unpatch.repository.paths import relative
from mcore_unpatch.survey.scan import report_of
from mcore_unpatch.survey.search import Progress
from mcore_unpatch.survey.survey import ScanOptions, Survey
from mcore_unpatch.upgrade.columns import Column

_DEEP = 6_000  # a question about a name leads through as many calls


# What may be on a branch and in no release.
_LACKING = (Outcome.NAME_GONE, Outcome.IMPORT_GONE, Outcome.MODULE_GONE, Outcome.CALL_UNFIT)


@record
class Copied:
    """A replacement that began as Megatron's own function: of which release, under which names it stands there."""

    release: str
    before: str
    after: str
    path: str
    function: Any
    share: float


@record
class PatchRow:
    """One patch: where it is, what each Megatron does to it, and what is to become of it."""

    path: str
    line: int
    target: str
    becomes: str
    effects: Mapping[str, tuple[Effect, ...]] = field(default_factory=dict)  # by the label of a column
    finding: Finding | None = field(default=None, repr=False)
    copied: Copied | None = field(default=None, repr=False)
    hybrid: Elsewhere | None = None  # when the model is a HybridModel, where the next Megatron has that


@record
class Event:
    """What happens at one place of the repository, and on which Megatrons; `row`: of the patch that it is due to."""

    effect: Effect
    releases: tuple[str, ...]
    row: PatchRow | None = None
    function: str = ""  # the outermost one around the place
    is_called: bool = True  # a file of the repository says the name of that function elsewhere


@dataclass(slots=True)
class UpgradeReport:
    """What an upgrade means for a repository."""

    scanned: Report
    columns: list[Column]
    rows: list[PatchRow] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    patch_files: list[Finding] = field(default_factory=list)
    files: int = 0  # that use Megatron, tests left out
    uses: int = 0
    older: int = 0  # Megatrons that are named and have no column
    builders: int = 0  # places that build, register or derive from a model that a HybridModel takes the place of

    @property
    def next(self) -> Column:
        """The Megatron to move to."""
        return self.columns[-1]

    @property
    def today(self) -> list[str]:
        """The labels of the Megatrons in use."""
        return [column.label for column in self.columns if not column.is_next]

    def shown(self, path: str) -> str:
        """A path of the project as machines are told it: relative to the root of the scan."""
        return relative(Path(self.scanned.top, path), Path(self.scanned.root))

    def from_here(self, path: str) -> str:
        """The same for people: relative to where they stand."""
        return self.scanned.from_here(self.shown(path))


class Reading:
    """A repository, read once: its patches and uses, to be held to any Megatron."""

    def __init__(
        self, paths: list[Path], options: ScanOptions, megatrons: Megatrons, progress: Progress | None = None
    ) -> None:
        survey = Survey(paths, options, progress, megatrons)
        self.scanned = report_of(survey)
        self._survey, self._progress, self._asked = survey, progress, set(survey.found.own)
        core = survey.core
        self._index, self.finder, self.patches, self.judge = core.index, core.finder, core.patches, core.judge
        self.uses, self.verdicts = core.uses, core.verdicts

    @cached_property
    def modules(self) -> list[Module]:
        """The files that are asked about and use Megatron, tests left out."""
        near = (path for path in self._index.sources if path in self._asked and not is_test(path))
        found = (self._index.module(path) for path in near if self.finder.near(path))
        return [module for module in found if module is not None]

    def rows(self, columns: Sequence[Column]) -> Iterator[PatchRow]:
        """Every patch outside tests; those that a comment accepts too, for an upgrade breaks them all the same."""
        findings = [*self.scanned.findings, *self.scanned.done]
        known = {(self.scanned.from_top(one.path), one.line, one.target): one for one in findings if _is_patch(one)}
        for patch in self.patches:
            if patch.path in self._asked:
                yield self._row(patch, known.get((patch.path, patch.line, patch.target)), columns)

    def _row(self, patch: Patch, finding: Finding | None, columns: Sequence[Column]) -> PatchRow:
        if finding is not None:
            becomes = finding.verdict
        else:
            becomes = str(self.verdicts.of(patch, [column.release for column in columns if not column.is_next]).fate)
        first, effects = columns[0], dict[str, tuple[Effect, ...]]()
        for column in columns:
            before = [one for one in columns if not one.is_next] if column.is_next else [first]
            if column is first:
                found = self.judge.step(patch, first.release, first.release)
            else:
                found = [one for old in before for one in self.judge.step(patch, old.release, column.release)]
            effects[column.label] = tuple(dict.fromkeys(found))
        copied = self._copied(patch, columns[-1].release)
        hybrid = self.on_hybrid(columns[-1].release)
        elsewhere = hybrid.of(self.judge.cases[patch]) if hybrid is not None else None
        return PatchRow(patch.path, patch.line, patch.target, becomes, effects, finding, copied, elsewhere)

    def on_hybrid(self, release: Detailed) -> OnOther | None:
        """What becomes of patches on a HybridModel; nothing for a Megatron without."""
        return OnOther(self.judge.names, HYBRID, release) if release.has(HYBRID.model) else None

    def _copied(self, patch: Patch, new: Detailed) -> Copied | None:
        case = self.judge.cases[patch]
        last = new if new.define(case.target) is not None else new.last_with(case.target)
        before, after = last.define(case.target) if last is not None else None, new.define(case.target)
        copy = copy_of(case, new, before, after)
        if copy is None or before is None or after is None:
            return None
        path = scope_of(case.function).module.path
        return Copied(copy.release, before.name, after.name, path, case.function, copy.share)

    def of_uses(self, columns: Sequence[Column]) -> Iterator[tuple[Effect, str]]:
        """What the Megatrons do to everything else, each with the label of the one that does it."""
        olds = [column for column in columns if not column.is_next] or [columns[0]]
        for number, module in enumerate(self.modules):
            if self._progress is not None:
                self._progress(number, len(self.modules))
            for old in olds:
                yield from ((effect, old.label) for effect in self.uses.on(module, old.release))
                if columns[-1].is_next:
                    new = columns[-1]
                    yield from ((effect, new.label) for effect in self.uses.step(module, old.release, new.release))

    def raising(self, column: Column) -> set[tuple[str, int]]:
        """The places of the repository that raise on a Megatron."""
        own = (patch for patch in self.patches if patch.path in self._asked)
        found = [one for patch in own for one in self.judge.step(patch, column.release, column.release)]
        found += [one for module in self.modules for one in self.uses.on(module, column.release)]
        return {one.place[:2] for one in found if one.raises}

    def outermost(self, effect: Effect) -> str:
        """The function that has to be called for a line to run."""
        module, line = self._index.module(effect.place.path), effect.place.line
        around = (one for one in (walk(module.tree) if module is not None else ()) if isinstance(one, NAMED_FUNCTIONS))
        found = [one for one in around if one.lineno <= line <= (one.end_lineno or line)]
        return str(min(found, key=lambda one: one.lineno).name) if found else ""

    def is_called(self, function: str) -> bool:
        """Whether the repository says the name of a function more often than where it is defined."""
        said = sum(source.count(function.encode()) for source in self._index.sources.values())
        return said > 1


def upgrade(reading: Reading, columns: Sequence[Column]) -> UpgradeReport:
    """Judge every patch and every use of a repository on some Megatrons, the one to move to last."""
    report = UpgradeReport(reading.scanned, list(columns))
    report.rows = list(reading.rows(columns))
    report.patch_files = [one for one in reading.scanned.findings if one.shape == PATCH_FILE]
    open_ones = [row for row in report.rows if row.becomes != DONE]  # beside the official way the old one is not taken
    of_patches = [(one, label, row) for row in open_ones for label in row.effects for one in row.effects[label]]
    of_uses = [(one, label, None) for one, label in reading.of_uses(columns)]
    report.events = _events([*of_patches, *of_uses], columns, reading)
    hybrid = reading.on_hybrid(columns[-1].release)
    report.builders = hybrid.builders(reading.modules) if hybrid is not None else 0
    report.files, report.uses = len(reading.modules), sum(len(reading.uses.of(module)) for module in reading.modules)
    return report


def _events(
    found: Sequence[tuple[Effect, str, PatchRow | None]], columns: Sequence[Column], reading: Reading
) -> list[Event]:
    """What is to be told: each cause at a place once, with the Megatrons on which it holds, those in use first."""
    order = {column.label: number for number, column in enumerate(columns)}
    told: dict[tuple[object, ...], tuple[Effect, set[str], PatchRow | None]] = {}
    for effect, label, row in found:
        if effect.raises or effect.differs:
            effect = _on_a_branch(effect)
            # A module that is gone, and one that lacks the name, are one cause.
            misfit = (effect.cause.by, effect.cause.words) if effect.kind == Outcome.CALL_UNFIT else ()
            key = (effect.raises or effect.kind, effect.cause.name, misfit, *effect.place[:2])
            _, releases, due_to = told.get(key, (effect, set(), row))
            told[key] = (effect, releases | {label}, due_to or row)
    events = []
    for effect, releases, row in told.values():
        function = reading.outermost(effect)
        labels = tuple(sorted(releases, key=order.__getitem__))
        called = not (effect.raises and function) or reading.is_called(function)
        events.append(Event(effect, labels, row, function, called))
    return sorted(events, key=lambda event: (not event.effect.raises, not event.is_called, event.effect.place[:2]))


def _on_a_branch(effect: Effect) -> Effect:
    """An effect of a name or keyword that no release has, with the branch of NVIDIA's that has it."""
    cause = effect.cause
    if cause.gone or cause.comes or effect.kind not in _LACKING:
        return effect
    for branch, there in packed.on_branches():
        taken = there.parameters(cause.name) or ()
        has = there.has(cause.name) is True
        if has and (effect.kind != Outcome.CALL_UNFIT or set(cause.words) <= set(taken)):
            return replace(effect, cause=cause._replace(comes=f"Megatron {branch.name}"))
    return effect


def _is_patch(finding: Finding) -> bool:
    return finding.shape not in (*NO_PATCHES, PATCH_FILE)


def never_runs(effects: Sequence[Effect]) -> bool:
    """Whether nothing happens with a patch on a Megatron."""
    return bool(effects) and all(one.kind in (Outcome.NEVER_RUNS, Outcome.NEVER_CALLED) for one in effects)
