"""What a codemod is: the rules it declares, what it finds, and the changes with which it answers findings.

One class in one file: a module of `mcore_unpatch.codemods.catalogue`, or a class that another package names under the
entry point group `mcore_unpatch.codemods`. docs/writing-a-codemod.md goes through one from the beginning.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.standing import RemainingPatches
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Level, Options, Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Rule
from mcore_unpatch.records import dataclass, record, replace

if TYPE_CHECKING:  # a codemod is declared in little time, and loads what it works with when it is asked
    from mcore_unpatch.codemods.shims.contract import Contract


@record
class Example:
    """Code before and after a migration: a test, a part of the documentation, and what `unpatch explain` prints."""

    rule: str
    before: str
    after: str = ""  # empty where the code is to stay
    unsafe: bool = False  # it takes --unsafe-fixes
    path: str = "pkg/megatron_module.py"  # of the file, where that matters


@dataclass(frozen=True)
class Situation:
    """A finding, and all that a codemod may have to see for it."""

    finding: Finding
    files: Workbench
    options: Options
    open: Sequence[Finding]  # all findings that are to be answered
    staying: RemainingPatches


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A place that a codemod finds: the node, the rule, and what people are told."""

    node: ast.stmt | ast.expr
    rule: str
    target: str  # the dotted name that is patched or used
    message: str  # "replaces ...", "uses ..."
    instead: str  # what to do, in one sentence
    level: Level | None = None  # of its change, where it is not the codemod's
    situation: Situation = None  # type: ignore[assignment]  # the finding and all around it, once `fix` is asked


@record
class AddImport:
    """`from module import name` where the file imports Megatron: at the top, under a guard or in the function."""

    module: str
    name: str


@record
class Note:
    """What people should know of the changes."""

    text: str


@record
class Mends:
    """An error of a Megatron in use that goes with the changes, in one line, and how they change what runs."""

    text: str
    level: Level = "behaviour"


@record
class Left:
    """Why the place is left; changes that come with it are not made."""

    because: str


COMPAT = "mcore_unpatch.compat"  # what new code imports
Fix: TypeAlias = "Change | AddImport | Note | Left | Mends"


class Codemod:
    """The base class. What is declared here is all that most codemods need beside `find` and `fix`."""

    name: ClassVar[str]  # `unpatch explain NAME`
    title: ClassVar[str]
    rules: ClassVar[Sequence[Rule]] = ()  # those it adds
    families: ClassVar[Mapping[str, str]] = {}  # prefixes of their codes that are new, and what each is about
    answers: ClassVar[Sequence[str]] = ()  # codes of the scanner's rules that it has changes for as well
    words: ClassVar[Sequence[bytes]] = ()  # a file without one of these has nothing to find
    level: ClassVar[Level] = "behaviour"  # of its changes
    offers: ClassVar[str] = ""  # what is gained, where nothing is wrong: said at the end, made where it is selected
    contract: ClassVar[Contract | None] = None  # of a downstream whose names have shims
    shape: ClassVar[str] = "downstream-use"  # of its findings
    needs_hook: ClassVar[bool] = False  # then nothing is changed while a patch of what carries the hook stays
    does: ClassVar[str] = ""  # what its changes do, in a few words, where that is not what a match says
    examples: ClassVar[Sequence[Example]] = ()
    # The sections of its page, as Markdown.
    covers: ClassVar[str] = ""
    changes: ClassVar[str] = ""
    applied: ClassVar[str] = ""
    by_hand: ClassVar[str] = ""

    package: str = ""  # who ships it, where that is not this package

    def says(self, data: bytes) -> bool:
        """Whether a file says one of the words; a codemod may look closer, as long as that is fast."""
        return any(word in data for word in self.words)

    def find(self, source: Source) -> Iterator[Match]:
        """The places in one file, which says one of the words."""
        yield from ()

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """The changes that take one match away; none if it is to stay.

        Imports that nothing uses any more go by themselves. For a finding of the scanner, of a rule in `answers`, the
        match has the outermost node at its place.
        """
        yield from ()

    def steps(self, match: Match, because: str) -> str:
        """What a person is told of a match that is left: why, and what the scanner says to do."""
        steps = (f"{number}. {step}" for number, step in enumerate(match.situation.finding.steps, 1))
        return "\n".join([f"Not rewritten: {because}.", *steps])

    def findings(self, project: Repository, known: Sequence[Finding]) -> Iterator[Finding | FileError]:
        """The findings in all files that say one of the words; `known` are the scanner's. Mostly `find` is enough."""
        from mcore_unpatch.codemods.quote import findings

        yield from findings(self, project)

    @property
    def all_rules(self) -> list[Rule]:
        """Its rules, each with its first example."""
        shown = {one.rule: (one.before.strip(), (one.after or one.before).strip()) for one in reversed(self.examples)}
        both = ((rule, *shown.get(rule.code, (rule.before, rule.after))) for rule in self.rules)
        return [replace(rule, before=before, after=after) for rule, before, after in both]

    def page(self) -> str:
        """What docs/ and `unpatch explain NAME` say of the codemod."""
        parts = [f"# {self.title}", f"`unpatch migrate` covers {self.covers.strip()}."]
        parts += [f"## What changes\n\n{self.changes.strip()}"] if self.changes else []
        for example in self.examples:
            how = f"{example.rule}, with `--unsafe-fixes`:" if example.unsafe else f"{example.rule}:"
            before, after = (f"```python\n{text.strip()}\n```" for text in (example.before, example.after))
            parts += [how, before, *(["becomes", after] if example.after else ["stays as it is."])]
        parts += [f"## When it is applied\n\n{self.applied.strip()}"] if self.applied else []
        parts += [f"## What to check by hand\n\n{self.by_hand.strip()}"] if self.by_hand else []
        return "\n\n".join(parts) + "\n"
