"""Where a repository makes the specs that answer a finding, and which patches stand where nothing leads to."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import KEEP, STEPS
from mcore_unpatch.library.syntax import last_attribute
from mcore_unpatch.megatron import api, slots
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.stacks.sources import INFO

_BY_SPEC = "MCU402"  # what a ModuleSpec answers
_MAKERS, _PROVIDER = ("ModuleSpec", "Submodules"), "SpecProvider"
_SPECS = re.compile(rb"ModuleSpec|Submodules\(|SpecProvider")
_WORDS = bytes(code if chr(code).isalnum() or code == ord("_") else ord(" ") for code in range(128)) + b" " * 128
_UNNAMED = "This repository is not seen to name it in a spec; Megatron's own functions may."
_ELSEWHERE = "Keep the patch for models whose spec is made elsewhere."
_MOST_SHOWN = 2
_OWN = ("unpatch.lock", "unpatch.baseline")  # what this tool wrote names what is patched
_Answers = dict[str, list[tuple[int, str]]]  # by word: a line of a file, and what is named there


def with_places(
    findings: list[Finding], own: Iterable[str], every: Sequence[str], project: Project, shown: Callable[[str], str]
) -> list[Finding]:
    """The findings, with where the specs that answer some are made, and what nothing calls."""
    megatrons = tuple(f"{path.removesuffix(INFO)}megatron/" for path in every if f"/{path}".endswith(f"/{INFO}"))
    own = (path for path in own if not is_test(path) and not path.startswith(megatrons))
    places = _Places(findings, own, project, shown)
    kept = {one.installed_by for one in findings if one.verdict == KEEP and not one.in_test}
    idle = named_once(kept - {""}, every, project)

    def told(finding: Finding) -> Finding:
        if _asks_for_a_spec(finding):
            return replace(finding, steps=(*finding.steps, places.of_specs(finding)))
        if finding.verdict != KEEP or finding.installed_by not in idle:
            return finding
        never = f"Nothing in this repository calls `{finding.installed_by}`, which it stands in."
        said = f"{finding.evidence} {never}".lstrip()
        return replace(finding, assessment=replace(finding.assessment, evidence=said))

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


def _answering(target: str) -> set[str]:
    """What a spec names that answers the patch of a target: a class, a field, or what a function makes."""
    owner, _, name = target.rpartition(".")
    holder = api.lookup(owner)
    own = set() if holder is not None and holder.kind == "class" and api.has_callable(owner, name) else {name}
    return {*own, *slots.named(owner), *slots.named(target)}


class _Places:
    """The specs of a repository that name what some findings are about. Of the files with the words few are parsed."""

    def __init__(
        self, findings: list[Finding], paths: Iterable[str], project: Project, shown: Callable[[str], str]
    ) -> None:
        self._project, self._shown = project, shown
        self._read = cache(self._read_now)
        answers = {word for one in findings if _asks_for_a_spec(one) for word in _answering(one.target)}
        words = {word.encode(): word for word in answers}
        self._holding: dict[str, list[str]] = {}  # the files, by word
        for path in paths if words else ():
            with suppress(Unreadable, OSError):
                data = project.data(path)
                for word in words.keys() & data.translate(_WORDS).split() if b"megatron" in data else ():
                    self._holding.setdefault(words[word], []).append(path)

    def of_specs(self, finding: Finding) -> str:
        """Where specs name what a finding is about, the nearest to it first."""
        words = _answering(finding.target)
        files = {path for word in words for path in self._holding.get(word, ())}
        found: list[str] = []
        for path in sorted(files, key=lambda path: (-len(os.path.commonpath([path, finding.path])), path)):
            if there := [place for word in words for place in self._read(path).get(word, ())]:
                line, name = min(there)
                found.append(f"{self._shown(path)}:{line} (`{name}`)")
            if len(found) > _MOST_SHOWN:
                break
        others = " and in other files" if len(found) > _MOST_SHOWN else ""
        named = f"Specs name it here: {', '.join(found[:_MOST_SHOWN])}{others}." if found else _UNNAMED
        return f"{named} {_ELSEWHERE}"

    def _read_now(self, path: str) -> _Answers:
        """The words of the specs of a file."""
        found: _Answers = {}
        with suppress(OSError, Unreadable, RecursionError):
            self._project.begin()
            for word, line in self._named(path, self._project.data(path)):
                found.setdefault(word, []).append((line, word))
        return found

    def _named(self, path: str, data: bytes) -> Iterator[tuple[str, int]]:
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
                    yield names.get(word, word), part.lineno
