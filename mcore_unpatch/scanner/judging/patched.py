"""What is said of a definition that a patch file changes: what its hunks do, if they apply, what can become of it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby

from mcore_unpatch.megatron import api, gone, slots
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version, show
from mcore_unpatch.scanner.judging import replacement, traits, upstream
from mcore_unpatch.scanner.judging.upstream import Change
from mcore_unpatch.scanner.sources.applying import APPLIES, DONE, FAILS
from mcore_unpatch.scanner.sources.fragments import Statement
from mcore_unpatch.scanner.sources.hunks import FileDiff, Hunk
from mcore_unpatch.scanner.sources.segments import Segment

SHAPE = "patch-file"
_RULE = "MCU608"
_MOST_RANGES = 4
_WORD = re.compile(rb"\w+")


@dataclass
class Text:
    """A patch file as a whole."""

    data: bytes

    @cached_property
    def lines(self) -> list[bytes]:
        """Its lines."""
        return self.data.split(b"\n")

    @cached_property
    def words(self) -> dict[bytes, list[int]]:
        """The lines that add a word, for each word."""
        found: dict[bytes, list[int]] = {}
        for number, line in enumerate(self.lines, 1):
            if line.startswith(b"+"):
                for word in set(_WORD.findall(line)):
                    found.setdefault(word, []).append(number)
        return found


@dataclass
class Patched:
    """One definition that a patch file changes."""

    file: FileDiff
    change: Change
    text: Text
    versions: Sequence[Version]
    release: str = ""  # of the source at hand
    hunks: list[Hunk] = field(default_factory=list)
    fits: set[str] = field(default_factory=set)  # how the hunks fit the source

    # --- words ---------------------------------------------------------------------------------------------------

    @property
    def message(self) -> str:
        """What it does, and what breaks."""
        return "; ".join([self._does, *self._applies, *self.breaks])

    @property
    def _applies(self) -> list[str]:
        return [f"applies to megatron-core {self.release}"] if self.fits == {APPLIES} else []

    @property
    def _does(self) -> str:
        name, where = self.change.name, self.file.path
        if not self.file.old or not self.file.new:
            return f"{'removes' if self.file.old else 'adds'} the file {where}"
        if not self.hunks:
            if self.file.old != self.file.new:
                return f"moves {self.file.old} to {where}"
            return f"changes the {'binary ' if self.file.binary else ''}file {where}"
        what = f"`{name}`" if name else where
        if self.change.is_new:
            return f"adds {what}"
        return f"changes {what}{f' in {len(self.hunks)} hunks' if len(self.hunks) > 1 else ''}{self._statements}"

    @property
    def _statements(self) -> str:
        change = self.change
        if not change.segments or not change.has_code:
            return ""
        added, removed = len(change.added), len(change.removed)
        said = [f"{number} {word}" for number, word in ((added, "added"), (removed, "removed")) if number]
        return f": statements {', '.join(said)}" if said else ""

    @cached_property
    def standing(self) -> int:
        """How many of the statements that it adds the newest judged release has in that function."""
        return upstream.standing(self.change, self.versions[-1]) if self.versions and not self.change.is_new else 0

    @property
    def _on(self) -> str:
        return f"megatron-core {show(self.versions[-1])}"

    @cached_property
    def breaks(self) -> list[str]:
        """Why it no longer applies."""
        if any(hunk.combined for hunk in self.hunks):
            return ["is a combined diff, which `git apply` does not take"]
        if self.release:
            return [f"no longer applies to megatron-core {self.release}"] if FAILS in self.fits else []
        if self.gone:
            return [f"no longer applies to {self._on}: {self.gone}"]
        last = {upstream.last_read(self.change, version) for version in self.versions} - {None}
        lost = min(filter(None, last), key=RELEASES.index, default=None)
        return [f"no longer applies to {self._on}: these lines last stood in {lost}"] if lost else []

    @cached_property
    def gone(self) -> str:
        """That what it changes is no longer there, and where it is now."""
        target = self.change.target
        if self.change.is_new or not self.file.old or not self.versions:
            return ""
        if not all(upstream.is_gone(target, version) for version in self.versions):
            return ""
        now = gone.moved_to(target)
        return f"it does not exist after {upstream.last_with(target)}" + (f", and is now `{now}`" if now else "")

    @cached_property
    def done(self) -> str:
        """Why nothing is left of it to do, as a sentence without its point."""
        if self.fits == {DONE}:
            return f"Megatron has it: megatron-core {self.release} has this change, and nothing is left to apply"
        change = self.change
        if not change.segments:
            return ""
        if not change.has_code:
            return "It changes comments, docstrings or blank lines alone: nothing runs differently without it"
        since = upstream.since(change, self.versions)
        if since is None:
            return ""
        what = "the same" if change.is_new else "what it adds, in the same place,"
        when = f"{show(parse_version(since))}{' or before' if since == RELEASES[0] else ''}"
        return f"Megatron has {what} since {when}, and nothing of what it takes away"

    @cached_property
    def row(self) -> Answer | None:
        """What is known of Megatron that speaks for it."""
        return next((row for row in answers() if row.fits(self._names, SHAPE) and self._may(row)), None)

    @property
    def rule(self) -> str:
        """By what is changed alone: a patch file that is written anew falls under the same rules."""
        rows = (row for row in answers() if row.shapes != (SHAPE,) and row.fits(self._names, SHAPE) and not row.traits)
        return next((row.rule for row in rows), "") or _RULE

    @property
    def stays(self) -> str:
        """Why it is kept, as a sentence without its point; empty where the row is a promise."""
        if self.row is not None and self.row.shapes == (SHAPE,):
            return ""
        if self.row is None:
            return self._reason
        perhaps = "" if self.row.verdict == "keep" else "if it is for that: "
        return f"{self._reason}; {perhaps}{self.told([self.row.way])[0]}{self.row.reference}"

    @property
    def _reason(self) -> str:
        if self.breaks:
            added = len(self.change.added)
            there = f", where {self.standing} of the {added} statements it adds stand by now" if self.standing else ""
            return f"It {self.breaks[0].partition(':')[0]}{there}; make it anew, or leave it out"
        if self.change.is_new or not self.file.old:
            return "It is new in the patch, and no release has it"
        return "No official way is known for what it does"

    def told(self, sentences: Iterable[str]) -> tuple[str, ...]:
        """Sentences of the row, in the words of this place."""
        return tuple(sentence.format(**self._words) for sentence in sentences)

    # --- the row -------------------------------------------------------------------------------------------------

    def _may(self, row: Answer) -> bool:
        """Rows for patch files ask what the hunks do; of others only those that fit whatever is done."""
        if row.shapes != (SHAPE,):
            return not row.traits
        return not self.gone and all(map(self._has, row.traits))

    def _has(self, trait: str) -> bool:
        return not self._has(trait[1:]) if trait.startswith("!") else HUNK_TRAITS[trait](self)

    @cached_property
    def _names(self) -> list[str]:
        owner, _, leaf = self.change.name.rpartition(".")
        module = self.change.module
        if not self.change.name:
            return [f"{module.rpartition('.')[2]}.*"]
        if not owner:
            last = module.rpartition(".")[2]
            return [f"{last}.{leaf}", *([f"{leaf}.*"] if leaf[:1].isupper() else [])]
        return [f"{one.rpartition('.')[2]}.{leaf}" for one in api.ancestry(f"{module}.{owner}")] or [self.change.name]

    @cached_property
    def _words(self) -> dict[str, str]:
        owner, _, name = self.change.name.rpartition(".")
        holder = f"{self.change.module}.{owner}"
        twin = upstream.twin(self.change, self.versions) or ("", RELEASES[0])
        named = slots.named(holder) if owner else ()
        return {
            "name": name or self.file.path,
            "owner": owner,
            "lines": self.lines,
            "uses": self._uses,
            "fields": ", ".join(f"`{one}`" for one in self._fields),
            "twin": twin[0].rpartition(".")[2],
            "twin_since": show(parse_version(twin[1])),
            "classes": slots.classes(holder) if named else "",
            "slots": slots.where(holder) if named else "",
            "unreached": slots.unreached(holder) if named else "",
        }

    @property
    def lines(self) -> str:
        """The lines of the patch file that are touched: `line 7`, `lines 7-9 and 20`."""
        numbers = sorted({line for segment in self.change.segments for line in segment.lines})
        numbers = numbers or [number for hunk in self.hunks for number in hunk.numbers] or [self.file.line]
        return _ranges(numbers)

    @property
    def _uses(self) -> str:
        """Where other lines that the patch file adds name what it brings."""
        leaf = self.change.name.rpartition(".")[2] or self.change.module.rpartition(".")[2]
        own = {line for segment in self.change.segments for line in segment.lines}
        own |= {number for hunk in self.hunks for number in hunk.numbers} if not self.change.name else set()
        found = [number for number in self.text.words.get(leaf.encode(), ()) if number not in own]
        return f" ({_ranges(found)})" if found else ""

    @property
    def _fields(self) -> list[str]:
        targets = (one.node.target for one in self.change.added if isinstance(one.node, ast.AnnAssign))
        return [target.id for target in targets if isinstance(target, ast.Name)]

    @property
    def _runs(self) -> list[set[str]]:
        """The words of each run of statements that is added."""
        return [_names_in(run) for segment in self.change.segments for run in segment.runs()]

    def all_say(self, pattern: re.Pattern[str]) -> bool:
        """Whether every run of statements that is added speaks of something, and nothing of it is out of sight."""
        runs, segments = self._runs, self.change.segments
        heads = any(segment.old.signature != segment.new.signature for segment in segments)
        elsewhere = any(isinstance(one.node, ast.Import | ast.ImportFrom) for one in self.change.added)
        whole = bool(runs) and not heads and not elsewhere and not any(segment.unread for segment in segments)
        return whole and all(any(map(pattern.search, words)) for words in runs)

    def is_own_code(self) -> bool:
        """A file or a definition of a module that no judged release has: nothing of Megatron's changes by it."""
        change, name = self.change, self.file.path.rpartition("/")[2]
        brought = not self.file.old and name.endswith(".py") and name != "__init__.py"
        if not brought and not (change.is_new and "." not in change.name and all(map(_can_move, change.segments))):
            return False
        return not any(upstream.definition(change.target, release) for release in upstream.releases(self.versions))

    def is_within(self) -> bool:
        """All changes are within the body of a method that the judged releases have."""
        change = self.change
        known = [upstream.definition(change.target, release) for release in upstream.releases(self.versions)]
        if "." not in change.name or change.is_new or change.name.endswith(".__init__") or not known:
            return False
        heads = any(
            segment.unread or segment.old.signature != segment.new.signature or segment.old.parameters
            or segment.new.parameters for segment in change.segments
        )  # fmt: skip
        return not heads and all(one is not None and one.kind == "function" for one in known)

    def adds_fields(self) -> bool:
        """Nothing but fields with a default are added to a class."""
        segments = self.change.segments
        added = self.change.added
        plain = all(isinstance(one.node, ast.AnnAssign) and one.node.value and one.depth == 1 for one in added)
        return bool(added) and plain and not self.change.removed and not any(segment.unread for segment in segments)

    def is_in_specs(self) -> bool:
        """A method of a class that specs name."""
        owner = self.change.name.rpartition(".")[0]
        name = f"{self.change.module}.{owner}"
        return bool(owner) and bool(slots.named(name)) and not slots.is_built_by_models(name)


# What hunks do, for the rows of `answers.toml` with the shape of patch files.
HUNK_TRAITS: dict[str, Callable[[Patched], bool]] = {
    "all-log-probs": lambda one: one.all_say(replacement.OUTPUT_WORDS),
    "all-detach": lambda one: one.all_say(re.compile("detach")),
    "all-replay": lambda one: one.all_say(re.compile("replay", re.IGNORECASE)),
    "with-mask": lambda one: bool(traits.MASKED.search(one.text.data)),
    "in-a-class-of-specs": Patched.is_in_specs,
    "within-a-method": Patched.is_within,
    "fields": Patched.adds_fields,
    "own-code": Patched.is_own_code,
    "twin": lambda one: upstream.twin(one.change, one.versions) is not None,
}


def _can_move(segment: Segment) -> bool:
    """Whether a definition that is added does the same in another module: what it decorates or sets may lead back."""
    node = segment.adds
    if node is None or getattr(node, "decorator_list", None) or getattr(node, "name", "").startswith("__"):
        return False
    return not any(isinstance(inner, ast.Global) for inner in ast.walk(node))


def _names_in(statements: list[Statement]) -> set[str]:
    """The words of statements; of compound ones those of the head, since what is in them stands for itself."""
    found: set[str] = set()
    for one in statements:
        for node in ast.walk(one.node):
            match node:
                case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word) | ast.keyword(arg=str(word)):
                    found.add(word)
                case ast.alias(name=word) | ast.FunctionDef(name=word):
                    found.add(word)
                case ast.Constant(value=str(word)):
                    found.add(word)
    return found


def _ranges(numbers: list[int]) -> str:
    """`line 7`, `lines 7-9, 20 and 3 more`: numbers one after the other are one range."""
    runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    said = [str(run[0][1]) if len(run) == 1 else f"{run[0][1]}-{run[-1][1]}" for run in runs]
    word = "line" if len(numbers) == 1 else "lines"
    if len(said) > _MOST_RANGES:
        said = [*said[:_MOST_RANGES], f"{len(said) - _MOST_RANGES} more"]
    return f"{word} {' and '.join(filter(None, [', '.join(said[:-1]), said[-1]]))}"
