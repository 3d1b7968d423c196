"""Where a repository makes the specs that answer a finding, and where it builds what only its builder can change."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial

from mcore_unpatch.findings.builders import NO_OTHER, leaf
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import KEEP, STEPS
from mcore_unpatch.library.syntax import last_attribute
from mcore_unpatch.megatron import api, slots
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.stacks.sources import INFO

_BY_SPEC = "MCU402"  # what a ModuleSpec answers
_MAKERS, _PROVIDER = ("ModuleSpec", "Submodules"), "SpecProvider"
_SPECS = re.compile(rb"ModuleSpec|Submodules\(|SpecProvider")
_WORDS = bytes(code if chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(128)) + b" " * 128
_BY_CLASS = "config-class"  # the answer that is a class of the config
_BUILT_ELSEWHERE = "Keep the patch for configs that another package builds, such as a bridge."
_UNNAMED = "This repository is not seen to name it in a spec; Megatron's own functions may."
_ELSEWHERE = "Keep the patch for models whose spec is made elsewhere."
_MOST_SHOWN = 2
_OWN = ("unpatch.lock", "unpatch.baseline")  # what this tool wrote names what is patched
_Place = tuple[int, str]  # a line of a file, and what is named there
_Answers = dict[str, list[_Place]]  # by word
_Question = Callable[[str, bytes, Iterable[str]], Iterator[tuple[str, _Place]]]  # to a file, of some names


def with_places(
    findings: list[Finding], own: Iterable[str], every: Sequence[str], project: Project, shown: Callable[[str], str]
) -> list[Finding]:
    """The findings, with where the specs that answer some are made, where others are built, and what nothing calls."""
    megatrons = tuple(f"{path.removesuffix(INFO)}megatron/" for path in every if f"/{path}".endswith(f"/{INFO}"))
    own = (path for path in own if not is_test(path) and not path.startswith(megatrons))
    places = _Places(findings, own, project, shown)
    kept = {one.installed_by for one in findings if one.verdict == KEEP and not one.in_test}
    idle = named_once(kept - {""}, every, project)

    def told(finding: Finding) -> Finding:
        if _asks_for_a_spec(finding):
            return replace(finding, steps=(*finding.steps, places.of_specs(finding)))
        if _asks_for_a_config(finding):
            here = places.of_builders(finding) or "This repository is not seen to build one."
            return replace(finding, steps=(*finding.steps, f"{here} {_BUILT_ELSEWHERE}"))
        if finding.verdict != KEEP:
            return finding
        never = f"Nothing in this repository calls `{finding.installed_by}`, which it stands in."
        said = (finding.evidence, places.of_builders(finding), never if finding.installed_by in idle else "")
        return replace(finding, assessment=replace(finding.assessment, evidence=" ".join(filter(None, said))))

    return [told(finding) for finding in findings]


def named_once(names: Iterable[str], paths: Sequence[str], project: Project) -> frozenset[str]:
    """The functions whose name no file has but for their definition."""
    count = {name.encode(): 0 for name in names}
    for near in (True, False):  # few are left after the files that have to do with Megatron
        left = {name for name, number in count.items() if number < 2}
        for path in paths if left else ():
            data = project.text(path) if not path.rpartition("/")[2].startswith(_OWN) else b""
            if (b"megatron" in data) == near and any(name in data for name in left):
                words = data.translate(_WORDS).split()
                for name in left.intersection(words):
                    count[name] += words.count(name)
    return frozenset(name.decode() for name, number in count.items() if number == 1)


def _asks_for_a_spec(finding: Finding) -> bool:
    return finding.rule == _BY_SPEC and finding.verdict == STEPS and bool(finding.steps)


def _asks_for_a_config(finding: Finding) -> bool:
    return finding.answer == _BY_CLASS and finding.verdict == STEPS and bool(finding.steps)


def _to_be_built(finding: Finding) -> str:
    """What a patch changes that the repository may build or call itself: a class, a function; empty for none."""
    kept = finding.verdict == KEEP and finding.can_be_pinned and finding.confidence == "certain"
    names = (finding.target, finding.target.rpartition(".")[0]) if kept or _asks_for_a_config(finding) else ()
    kinds = ("class",) if NO_OTHER in finding.evidence else ("class", "function")  # who calls it is told as it is
    there = [(name, symbol) for name in names if (symbol := _symbol(name)) is not None and symbol.kind in kinds]
    # What a module has of another one is not what others build or call.
    return next((one.name for name, one in there[-1:] if name != finding.target or name == one.name), "")


def _symbol(name: str) -> api.Symbol | None:
    """What a name of Megatron's is; of what no release has its first letter tells a class."""
    unread = api.Symbol("class" if leaf(name)[:1].isupper() else "value", name) if within(name) else None
    return api.lookup(name) or unread


def _answering(target: str) -> set[str]:
    """What a spec names that answers the patch of a target: a class, a field, or what a function makes."""
    owner, _, name = target.rpartition(".")
    holder = api.lookup(owner)
    own = set() if holder is not None and holder.kind == "class" and api.has_callable(owner, name) else {name}
    return {*own, *slots.named(owner), *slots.named(target)}


def _called_here(names: Iterable[str], data: bytes) -> bytes:
    """What a file may call some names, as a pattern: themselves, or what it imports them as."""
    there = re.finditer(rb"(?:%b)\b(?:\s+as\s+(\w+))?" % "|".join(names).encode(), data)
    return b"|".join(sorted({match[1] or match[0] for match in there}))


def _is_called(name: bytes, data: bytes) -> bool:
    """Whether a name is called, as far as the text tells."""
    before = (data[max(match.start() - 6, 0) : match.start()] for match in re.finditer(rb"%b\s*\(" % name, data))
    return any(text != b"class " and not re.search(rb"\w\Z", text) for text in before)


class _Places:
    """The places of a repository that tell of some findings. Of the files with the words the nearest are parsed."""

    def __init__(
        self, findings: list[Finding], paths: Iterable[str], project: Project, shown: Callable[[str], str]
    ) -> None:
        self._project, self._shown = project, shown
        self._read = cache(self._read_now)
        answers = {word for one in findings if _asks_for_a_spec(one) for word in _answering(one.target)}
        classes = {leaf(cls) for cls in map(_to_be_built, findings)} - {""}
        words = {word.encode(): word for word in {*answers, *classes}}
        self._holding: dict[str, list[str]] = {}  # the files, by word
        for path in paths if words else ():
            with suppress(Unreadable, OSError):
                data = project.data(path)
                for word in words.keys() & data.translate(_WORDS).split() if b"megatron" in data else ():
                    self._holding.setdefault(words[word], []).append(path)

    def of_specs(self, finding: Finding) -> str:
        """Where specs name what a finding is about."""
        words = _answering(finding.target)
        named = self._listed("Specs name it", finding, words, words, partial(self._read, self._named, ()))
        return f"{named or _UNNAMED} {_ELSEWHERE}"

    def of_builders(self, finding: Finding) -> str:
        """Where the repository builds the class that a finding is about, or calls that; nothing where it does not."""
        if not (name := _to_be_built(finding)):
            return ""
        names, does = (leaf(name),), "builds" if leaf(name).lstrip("_")[:1].isupper() else "calls"
        read = partial(self._read, self._built, names)
        return self._listed(f"This repository {does} it", finding, names, [name], read)

    def _listed(
        self, what: str, finding: Finding, held: Iterable[str], words: Iterable[str], read: Callable[[str], _Answers]
    ) -> str:
        """The first place in each of some files, of those that hold some words, the nearest to a finding first."""
        files = {path for word in held for path in self._holding.get(word, ())}
        found: list[str] = []
        for path in sorted(files, key=lambda path: (-len(os.path.commonpath([path, finding.path])), path)):
            if there := [place for word in words for place in read(path).get(word, ())]:
                line, name = min(there)
                found.append(f"{self._shown(path)}:{line} (`{name}`)")
            if len(found) > _MOST_SHOWN:
                break
        others = " and in other files" if len(found) > _MOST_SHOWN else ""
        return f"{what} here: {', '.join(found[:_MOST_SHOWN])}{others}." if found else ""

    def _read_now(self, ask: _Question, names: tuple[str, ...], path: str) -> _Answers:
        """What a file answers to a question, by word."""
        found: _Answers = {}
        with suppress(OSError, Unreadable, RecursionError):
            self._project.begin()
            for word, place in ask(path, self._project.data(path), names):
                found.setdefault(word, []).append(place)
        return found

    def _built(self, path: str, data: bytes, names: Iterable[str]) -> Iterator[tuple[str, _Place]]:
        """The classes and functions that are called."""
        yield from ((name, (call.lineno, leaf(name))) for call, name in self._calls(path, data, names))

    def _calls(self, path: str, data: bytes, names: Iterable[str]) -> Iterator[tuple[ast.Call, str]]:
        """The calls of what Megatron has under some names, with its full name there."""
        called = [name.decode() for name in _called_here(names, data).split(b"|") if _is_called(name, data)]
        for call, at in (call for name in called for call in self._project.resolver(path).calls_of(name)):
            ref = at.expr(call.func)
            if ref is not None and ref.home is None and (symbol := _symbol(ref.name)) is not None:
                yield call, symbol.name

    def _named(self, path: str, data: bytes, _: Iterable[str]) -> Iterator[tuple[str, _Place]]:
        """The words of specs."""
        home = self._project.resolver(path)
        nodes = [*walk(home.model.tree)] if _SPECS.search(data) else []
        names = {alias.asname: alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        plain = [(to, node.value) for node in nodes if isinstance(node, ast.Assign) for to in node.targets]
        held: dict[str, list[ast.expr]] = {}
        for one, value in plain:
            held.setdefault(getattr(one, "id", ""), []).append(value)
        for node in nodes:
            parts: Iterable[ast.AST] = ()
            if isinstance(node, ast.Call) and last_attribute(node.func).endswith(_MAKERS):
                parts = walk(node)
            elif isinstance(node, ast.ClassDef) and node.name.endswith(_PROVIDER):
                parts = (part for one in walk(node) if isinstance(one, ast.Return) for part in walk(one))
            if not (given := [*parts]):
                continue  # as for nearly all nodes
            # Also by a variable, which may hold one of several.
            variables = [value for part in given if isinstance(part, ast.Name) for value in held.get(part.id, ())]
            given += [node for value in variables for node in walk(value)]
            for part in (part for part in given if isinstance(part, ast.Name | ast.Attribute | ast.keyword)):
                word = last_attribute(part) or getattr(part, "arg", None) or ""
                ref = home.on_line(part.lineno).expr(part)
                if ref is None or ref.is_core:  # else a class of another library, or one of the repository's own
                    yield names.get(word, word), (part.lineno, names.get(word, word))
