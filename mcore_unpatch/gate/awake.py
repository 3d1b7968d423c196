"""Patches that stood there before and did not run: a change calls what installs them, or passes it another switch."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.conditions import call_sites
from mcore_unpatch.scanner.conditions.holding import run_on
from mcore_unpatch.scanner.conditions.literals import Release, Run
from mcore_unpatch.scanner.conditions.values import arguments
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.names.resolver import Position
from mcore_unpatch.scanner.sources.effort import Exhausted
from mcore_unpatch.scanner.sources.files import Reader
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.scanner.sources.scopes import FunctionNode, Scope

_DEEPEST = 5  # functions that call functions that call the installer
_MOST_FILES = 30  # that say a function which leads to an installer: one that more of them say tells nothing
_HEADS = re.compile(rb"^([ \t]*)(?:async +)?(?:def|class) +(\w+)", re.MULTILINE)


@dataclass(slots=True)
class SourceTree:
    """The Python files of one commit, or of the work tree."""

    paths: Iterable[str]
    exists: Callable[[str], bool]
    read: Reader
    versions: Callable[[str], tuple[Version, ...]]  # the releases a file is judged for
    changed: list[bytes] = field(default_factory=list)  # the files that the other tree has otherwise, of both
    chain: set[bytes] = field(default_factory=set)  # functions through which a change may come to an installer
    _texts: dict[str, list[str]] = field(default_factory=dict)  # the files that say a name
    project: Project = field(init=False)

    def __post_init__(self) -> None:
        self.project = Project(self.exists, self.read)

    def makes(self, finding: Finding) -> bool:
        """Whether something calls what installs a patch, and lets it; true where that is not evident."""
        try:
            self.project.begin()
            at = self.project.resolver(finding.path).on_line(finding.line)
            runs = [run_on(Release(known.newest(version).label)) for version in self.versions(finding.path)]
            return self._is_called(at.scope, runs, at)
        except FileNotFoundError:
            return False
        except (OSError, Unreadable, RecursionError, Exhausted):
            return True

    def _is_called(self, scope: Scope, runs: list[Run], at: Position | None = None, depth: int = 0) -> bool:
        """Whether some call of the function around a scope is reached; `at` is the place in it that is asked for."""
        name, function = _called_as(scope)
        if not name or depth > _DEEPEST:
            return True
        if depth and name.encode() not in self.chain and not any(name.encode() in text for text in self.changed):
            return True  # or it was not called before either
        for path in self._saying(name):
            for use in call_sites.uses(name, path, self.project):
                if use is None:
                    return True
                call, place = use
                inner = at is not None and at.scope.function is not None and at.scope.function.node is function
                ways = (run for run in runs if run.reaches(place) is not False)
                is_reached = any(not (inner and at and _is_shut(at, call, place, run)) for run in ways)
                within = place.scope.function
                itself = within is not None and within.node is function
                if is_reached and not itself and self._is_called(place.scope, runs, None, depth + 1):
                    return True
        return False

    def _saying(self, name: str) -> list[str]:
        if name not in self._texts:
            word = name.encode()
            self._texts[name] = [path for path in self.paths if not is_test(path) and word in self.project.text(path)]
        return self._texts[name]

    def before(self, added: Set[str], contents: Mapping[str, bytes]) -> SourceTree:
        """The same without some files, and with what others held, or those that are gone."""

        def read(path: str) -> bytes:
            if path in added:
                raise FileNotFoundError(path)
            return contents[path] if path in contents else self.read(path)

        def exists(path: str) -> bool:
            return path in contents or (path not in added and self.exists(path))

        now = [self.project.text(path) for path in (*added, *contents)]
        paths = sorted({*self.paths, *contents}.difference(added))
        return SourceTree(paths, exists, read, self.versions, [*contents.values(), *now])


def _is_shut(at: Position, call: ast.Call, place: Position, run: Run) -> bool:
    """Whether what a call passes keeps a place of the function from being reached."""
    scope = at.scope.function
    if scope is None:
        return False
    assert isinstance(scope.node, ast.FunctionDef | ast.AsyncFunctionDef)
    return run.reaches(at._replace(given=arguments(scope.node, at.home, call, place, run))) is False


def _called_as(scope: Scope) -> tuple[str, FunctionNode | None]:
    """The outermost function around a scope, and the name it is called by; none where others than calls may run it."""
    function: FunctionNode | None = None
    name = ""
    for around in scope.outwards():
        if isinstance(around.node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, name = around.node, around.node.name
            if around.node.decorator_list:
                return "", None
        elif isinstance(around.node, ast.ClassDef):
            name = around.node.name if name == "__init__" else name
    return ("" if name.startswith("__") else name), function


def awakened(
    now: SourceTree,
    before: list[SourceTree],
    changed: Mapping[str, object],
    pairs: Callable[[Finding], Iterable[Finding]],
    known_ones: Iterable[Finding],
) -> Iterator[Finding]:
    """Patches that were there before, and that no call made; `pairs` gives what a finding was before.

    changed: the files that are not as they were. Where neither these nor who imports them name what is around a patch,
    or a function that leads there, nothing wakes it.
    """
    now.changed = [text for tree in before for text in tree.changed]
    asked = [finding for finding in known_ones if finding.scope and not finding.in_test]
    words = {part.encode() for finding in asked for part in finding.scope.split(".")} if changed else set()
    near = _near(words, now, changed)
    for tree in (now, *before):
        tree.chain = near
    for finding in asked:
        if near.isdisjoint(part.encode() for part in finding.scope.split(".")):
            continue
        earlier = list(pairs(finding))
        slept = bool(earlier) and not any(tree.makes(finding) for tree in before for finding in earlier)
        if slept and now.makes(finding):
            told = f"{finding.message}; before this change no call of `{finding.scope}` made it"
            yield replace(finding, message=told)


def _near(words: set[bytes], now: SourceTree, changed: Mapping[str, object]) -> set[bytes]:
    """Those of some functions that a change may call, with the functions in between: told by the bytes of files."""
    near: set[bytes] = set()
    leads = {word: frozenset({word}) for word in words}  # by function: what it comes to, itself included
    for _ in range(_DEEPEST):
        said: dict[bytes, list[str]] = {}
        for path in now.paths if leads else ():
            data = now.project.text(path)
            here = [word for word, through in leads.items() if word in data and not through <= near]
            if here and (path in changed or not changed.keys().isdisjoint(now.project.imported(path))):
                near.update(*(leads[word] for word in here))
            elif not is_test(path):
                for word in here:
                    said.setdefault(word, []).append(path)
        above: dict[bytes, frozenset[bytes]] = {}
        for word, paths in said.items():
            if leads[word] <= near or len(paths) > _MOST_FILES or word.startswith(b"__"):
                continue
            for name in {name for path in paths for name in _around(word, now.project.text(path))} - leads[word]:
                above[name] = above.get(name, frozenset({name})) | leads[word]
        leads = above
    return near


def _around(word: bytes, data: bytes) -> Iterator[bytes]:
    """The functions and classes around each place where a file says a word, as its indentation tells."""
    heads = [(match.start(), len(match[1]), match[2]) for match in _HEADS.finditer(data)]
    outer: list[int] = []  # of each the one around it
    for index, (_, margin, _) in enumerate(heads):
        other = index - 1
        while other >= 0 and heads[other][1] >= margin:
            other = outer[other]
        outer.append(other)
    for match in re.finditer(rb"\b%b\b" % re.escape(word), data):
        start = data.rfind(b"\n", 0, match.start()) + 1
        margin = len(data[start : match.end()]) - len(data[start : match.end()].lstrip())
        index = bisect_left(heads, (start,)) - 1
        while index >= 0:
            if heads[index][1] < margin:
                yield heads[index][2]
            index = outer[index]
