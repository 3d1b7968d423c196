"""Where a repository makes the specs that answer a finding, and where it builds what only its builder can change."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.verdicts import KEEP, STEPS
from mcore_unpatch.library.syntax import last_attribute
from mcore_unpatch.megatron import api, slots
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable

_BY_SPEC = "MCU402"  # what a ModuleSpec answers
_MAKERS, _PROVIDER = ("ModuleSpec", "Submodules"), "SpecProvider"
_SPECS = re.compile(rb"ModuleSpec|Submodules\(|SpecProvider|_spec")
_FUNCTION = re.compile(r"_?get_\w*_specs?(_\w+)?")  # of Megatron's
_WHOLE = re.compile("layer|block|stack|modelopt")  # one for all of a layer; the others are for a part of it
_PARTS = {
    "mlp|moe": r"(MLP|MoE)Submodules|\.mlp\b",
    "dsa|delta_net|attention": r"Attention|DSA|Delta|\.self_attention\b",
}
_ONLY = {  # classes that only some of them name
    "TE": "^(?!.*_local_)",
    "Wrapped": "^(?!.*(_te_|transformer_engine))",
    "Mamba|Hybrid": "mamba|hybrid|stack",
    "DSA|GatedDelta": "dsa|delta|variant|mamba|hybrid|stack",
}
_ELSEWHERE = "Keep the patch for models whose spec is made elsewhere."
_BUILDERS = "nly the code that builds"  # as evidence says it
_MOST_SHOWN = 2
_Place = tuple[int, str]  # a line of a file, and what is named there


def with_places(
    findings: list[Finding], paths: Iterable[str], project: Project, shown: Callable[[str], str]
) -> list[Finding]:
    """The findings, with where the specs that answer some are made, and where what others need is built."""
    own = [path for path in paths if not is_test(path)]
    specs: dict[str, list[_Place]] = {}
    if any(map(_asks_for_a_spec, findings)):
        specs = {path: words for path in own if (words := _words_of_specs(path, project))}
    built = _built_here({*filter(None, map(_to_be_built, findings))}, own, project)

    def told(finding: Finding) -> Finding:
        if _asks_for_a_spec(finding):
            return replace(finding, steps=(*finding.steps, _where_specs_are(finding, specs, shown)))
        if places := built.get(_to_be_built(finding)):
            said = _listed("This repository builds it", finding, places, shown)
            return replace(finding, assessment=replace(finding.assessment, evidence=f"{finding.evidence} {said}"))
        return finding

    return [told(finding) for finding in findings]


def _to_be_built(finding: Finding) -> str:
    """The class that a patch could be a subclass of, for the code that builds it; empty for none."""
    if finding.verdict != KEEP or not (_BUILDERS in finding.evidence or api.is_model(finding.target)):
        return ""
    return next((name for name in (finding.target, finding.target.rpartition(".")[0]) if _is_class(name)), "")


def _is_class(name: str) -> bool:
    symbol = api.lookup(name)
    return symbol is not None and symbol.kind == "class"


def _built_here(classes: set[str], paths: Iterable[str], project: Project) -> dict[str, dict[str, list[_Place]]]:
    """The calls of some classes, by class and file."""
    built: dict[str, dict[str, list[_Place]]] = {}
    named = "|".join(re.escape(cls.rpartition(".")[2]) for cls in sorted(classes)).encode()
    words = re.compile(rb"\b(%b)\b(?:\s+as\s+(\w+))?" % named)
    for path in paths if classes else ():
        with suppress(OSError, Unreadable, RecursionError):
            data = project.data(path)
            names = {match[2] or match[1] for match in words.finditer(data)} if b"megatron" in data else set()
            called = sorted(name.decode() for name in names if re.search(rb"\b%b\s*\(" % name, data))
            project.begin()
            for call, at in (call for name in called for call in project.resolver(path).calls_of(name)):
                ref = at.expr(call.func)
                if ref is not None and ref.home is None and (symbol := api.lookup(ref.name)) and symbol.name in classes:
                    of_file = built.setdefault(symbol.name, {}).setdefault(path, [])
                    of_file.append((call.lineno, symbol.name.rpartition(".")[2]))
    return built


def _asks_for_a_spec(finding: Finding) -> bool:
    return finding.rule == _BY_SPEC and finding.verdict == STEPS and bool(finding.steps)


def _words_of_specs(path: str, project: Project) -> list[_Place]:
    """The words of the specs that a file makes with their lines, and Megatron's functions that it has some from."""
    places: list[_Place] = []
    try:
        data = project.data(path)
        if b"megatron" not in data or not _SPECS.search(data):
            return []
        project.begin()
        resolver = project.resolver(path)
        nodes = [*walk(resolver.model.tree)]
        names = {alias.asname: alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
        plain = [(to, node.value) for node in nodes if isinstance(node, ast.Assign) for to in node.targets]
        held = {one.id: value for one, value in plain if isinstance(one, ast.Name)}
        for node in nodes:
            parts: Iterable[ast.AST] = ()
            called = last_attribute(node.func) if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and _FUNCTION.fullmatch(name := names.get(called, called)):
                ref = resolver.on_line(node.lineno).expr(node.func)
                places += [(node.lineno, name)] if ref is not None and ref.is_core else []
            elif called.endswith(_MAKERS):
                parts = walk(node)
            elif isinstance(node, ast.ClassDef) and node.name.endswith(_PROVIDER):
                parts = (part for one in walk(node) if isinstance(one, ast.Return) for part in walk(one))
            if not (given := [*parts]):
                continue  # as for nearly all nodes
            # Also by a variable, which may hold one of several.
            given += [node for part in given if (name := getattr(part, "id", "")) in held for node in walk(held[name])]
            words = [part for part in given if isinstance(part, ast.Name | ast.Attribute | ast.keyword)]
            every = [(part.lineno, last_attribute(part) or getattr(part, "arg", None) or "") for part in words]
            places += [(line, names.get(word, word)) for line, word in every if not _FUNCTION.fullmatch(word)]
    except (OSError, Unreadable, RecursionError):
        return []
    return sorted(places)


def _where_specs_are(finding: Finding, specs: dict[str, list[_Place]], shown: Callable[[str], str]) -> str:
    """Where specs name what a finding is about, and where functions of Megatron's make some that may."""
    owner, _, name = finding.target.rpartition(".")
    classes = {*slots.named(owner), *slots.named(finding.target)}
    words = {name, *classes} if not _FUNCTION.fullmatch(name) else ()
    said = []

    def makes(function: str) -> bool:
        return bool(_FUNCTION.fullmatch(function)) and (not words or _may_name(function, classes))

    for what, fits in (("Specs name it", words.__contains__), ("Megatron makes specs", makes)):
        there = {path: [place for place in places if fits(place[1])] for path, places in specs.items()}
        said += [_listed(what, finding, there, shown)] if any(there.values()) else []
    return " ".join([*(said or ["This repository is not seen to make such a spec."]), _ELSEWHERE])


def _may_name(function: str, classes: set[str]) -> bool:
    """Whether a function of Megatron's may make a spec with one of some classes, by what the function is called."""
    for some, makers in _ONLY.items():
        if classes and all(re.match(some, cls) for cls in classes) and not re.search(makers, function):
            return False
    held = " ".join(slot for cls in classes for slot in slots.table().get(cls, ()))
    parts = (re.search(part, function) and re.search(held_in, held) for part, held_in in _PARTS.items())
    return bool(_WHOLE.search(function)) or any(parts)


def _listed(what: str, finding: Finding, there: dict[str, list[_Place]], shown: Callable[[str], str]) -> str:
    """The first place in each file, the nearest to a finding first."""
    files = [path for path, places in there.items() if places]
    near = sorted(files, key=lambda path: (-len(os.path.commonpath([path, finding.path])), path))
    more = len(near) - _MOST_SHOWN
    others = f" and {more} more {'file' if more == 1 else 'files'}" if more > 0 else ""
    places = [f"{shown(path)}:{min(there[path])[0]} (`{min(there[path])[1]}`)" for path in near[:_MOST_SHOWN]]
    return f"{what} here: {', '.join(places)}{others}."
