"""Patches whose function is called only under a condition: then they live where its calls do.

Asked in two steps, so that a scan without such calls pays nothing: files that test for a release are looked into for
calls of the functions that install patches; only a function with such a call is looked for in the whole repository.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from mcore_unpatch.findings.finding import Finding, Live
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version, show
from mcore_unpatch.scanner.conditions.literals import SHIMS
from mcore_unpatch.scanner.conditions.live import Liveness
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope, last_attribute, path_text

_TESTS = b"__version__ version_info find_spec signature(".split()
_FAR = 100  # bytes before a name that are looked at, to see what it is an attribute of
_OWNER = re.compile(rb"(\w++)\s*+\.\Z")
_ALIAS = re.compile(rb"\bas\s++(\w++)")
_OF_MEGATRON = b"mcore_ge mcore_gt mcore_lt mcore_version".split()


def tests_a_release(data: bytes) -> bool:
    """Whether a file may ask which release it runs on."""
    # A pattern of these takes ten times as long.
    return any(word in data for word in (*_TESTS, *(_OF_MEGATRON if b"mcore_" in data else ())))


def installer(scope: Scope) -> str:
    """The function that has to be called for a patch to be made; empty where that cannot be told by its calls."""
    outermost: FunctionNode | None = None
    for around in scope.outwards():
        if isinstance(around.node, ast.FunctionDef | ast.AsyncFunctionDef):
            outermost = around.node
        elif around.kind == "class":
            return ""
    return outermost.name if outermost is not None and not outermost.decorator_list else ""


def narrowed(
    findings: list[Finding],
    paths: list[str],
    testing: Iterable[str],
    project: Project,
    versions: dict[str, tuple[Version, ...]],
) -> list[Finding]:
    """The findings, those with an installer that is called under conditions alone with the releases of its calls."""
    homes: dict[str, set[str]] = {}
    for finding in findings:
        homes.setdefault(finding.installed_by, set()).add(finding.path)
    # Which of several functions of one name is called is not asked.
    names = {name: name.encode() for name, several in homes.items() if name and len(several) == 1}
    if not names:
        return findings
    under = {name for path in testing for name, live in _calls(path, names, project) if str(live) != "any"}
    said: dict[str, list[str]] = {name: [] for name in under}
    defined = Counter[str]()
    for path in paths if under else ():  # which are read once for all of the names
        data = project.text(path)
        for name in under:
            if (word := name.encode()) in data:
                said[name].append(path)
                defined[name] += len(re.findall(rb"\bdef %b\b" % word, data))
    # Which of several is called is not asked.
    ones = ((name, files) for name, files in said.items() if defined[name] == 1)
    alive = {name: live for name, files in ones if (live := _everywhere(name, files, project)) is not None}
    return [
        _narrow(one, alive[one.installed_by], versions[one.path]) if one.installed_by in alive else one
        for one in findings
    ]


def _everywhere(name: str, said: list[str], project: Project) -> Live | None:
    """The releases on which some call of a function is reached; None if it may be called otherwise.

    `said` are the files with its name.
    """
    lives: list[Live] = []
    liveness = Liveness()
    for path in said:
        for use in uses(name, path, project):
            if use is None:
                return None
            lives.append(_called_on(liveness.at(use[1]), path))
    if not lives:
        return None
    releases = tuple(release for release in RELEASES if any(release in live.releases for live in lives))
    guards = tuple(guard for live in lives for guard in live.guards)
    return Live(releases, any(live.newer for live in lives), guards=guards)


def _calls(path: str, names: dict[str, bytes], project: Project) -> Iterable[tuple[str, Live]]:
    """The calls of some functions in a file, and the releases on which each is reached."""
    data = project.text(path)
    called = [name for name, word in names.items() if word in data and _may_call(word, data)]
    resolver = _resolver(path, project) if called else None
    if resolver is None:
        return
    liveness = Liveness()
    for name in called:
        for _, at in resolver.calls_of(name):
            yield name, _called_on(liveness.at(at), path)


def _may_call(word: bytes, data: bytes) -> bool:
    """Whether a file has a call of a function: by its name alone, or of what the file imports, as `patches.install()`.

    Else every `model.train()` would be one of a function `train`.
    """
    starts = [match.start() for match in re.finditer(rb"%b(?<!\w%b)\(" % (word, word), data)]
    before = [data[max(0, start - _FAR) : start].rstrip() for start in starts]
    if any(not text.endswith((b".", b"def")) for text in before):
        return True
    owners = {owner[1] for text in before if (owner := _OWNER.search(text))}
    imported = (name.rpartition(".")[2].encode() for name in prefilter.imported_modules(data)) if owners else ()
    return not owners.isdisjoint({*imported, *_ALIAS.findall(data)})


def _called_on(live: Live, path: str) -> Live:
    return replace(live, guards=tuple(replace(guard, branch="call", path=path) for guard in live.guards))


def uses(name: str, path: str, project: Project) -> Iterator[tuple[ast.Call, Position] | None]:
    """The calls of a function in a file, by whatever name it is imported; None for each other way to get hold of it."""
    resolver = _resolver(path, project)
    if resolver is None:
        yield None
        return
    nodes = list(walk(resolver.model.tree))
    aliases = [alias for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = {name, *(alias.asname for alias in aliases if alias.name == name and alias.asname)}
    listed = [node for node in resolver.model.tree.body if isinstance(node, ast.Assign)]
    told = {id(part) for node in listed if path_text(node.targets[0]) == "__all__" for part in ast.walk(node)}
    reads = 0
    for node in nodes:
        if isinstance(node, ast.Constant):
            reads += node.value == name and id(node) not in told  # asked for by its name
        elif isinstance(node, ast.Name | ast.Attribute):
            reads += isinstance(node.ctx, ast.Load) and last_attribute(node) in names
    calls = [call for each in names for call in resolver.calls_of(each)]
    yield from (each for each in calls if not _is_of_a_shim(*each))
    if reads != len(calls):
        yield None


def _is_of_a_shim(call: ast.Call, at: Position) -> bool:
    """Whether the function of that name in another package is called: an old one hands over to its shim."""
    ref = at.expr(call.func)
    return ref is not None and ref.kind == "external" and ref.name.startswith(SHIMS)


def _narrow(finding: Finding, calls: Live, versions: tuple[Version, ...]) -> Finding:
    own = finding.live
    releases = tuple(release for release in own.releases if release in calls.releases)
    live = Live(releases, own.newer and calls.newer, own.depends, (*own.guards, *calls.guards))
    told, message = [release for release in finding.affected if live.on(parse_version(release))], finding.message
    finding = replace(
        finding, live=live, affected=tuple(told), fails=tuple(release for release in finding.fails if release in told)
    )
    if not told:
        for said in finding.breaks:
            message = message.replace(f"; {said}", "")
        finding = replace(finding, effect="", breaks=())
    if any(map(own.on, versions)) and not any(map(live.on, versions)):
        never = f"never runs on megatron-core {' or '.join(map(show, versions))}"
        message += f"; {never}, where no call of `{finding.installed_by}` is reached"
    elif str(live) != str(own):
        message = f"{message.replace(f'; runs only on megatron-core {own}', '')}; runs only on megatron-core {live}"
    return replace(finding, message=message)


def _resolver(path: str, project: Project) -> Resolver | None:
    project.begin()
    try:
        return project.resolver(path)
    except (OSError, Unreadable, RecursionError):
        return None
