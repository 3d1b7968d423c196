"""Are the sentences of `unpatch scan` true? Ask the sources of the releases, by a reading of their own.

    unpatch scan --output-format json CHECKOUT > report.json
    python tools/sentence_oracle.py --sources FOLDER report.json...

FOLDER holds the unpacked wheels by version (`FOLDER/0.16.1/megatron/core`), best of every release. Nothing of the tool
is used: names are followed through imports, stars and base classes anew. Three kinds of sentences are checked:

- history: "Changed in 0.16 and 0.19", "Unchanged since 0.12", "Gone since 0.16", of what a finding replaces;
- callers: "`A` and 2 more classes or modules call it by name", of functions and classes of modules;
- names: "`f` does not exist before megatron-core 0.17.0".

What it prints is to be read by a person: packages that re-export a name, constants and what comes from outside are
seen in a simple way.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

Place = tuple[str, str]  # a module, and a name in it; the name is empty for the module itself
_HISTORY = re.compile(r"(Changed in|Unchanged since|Gone since).*?(?=;|$)")
_CALLERS = re.compile(
    r"(?<!: )`(\w+)`(?: and (another class or module|(\d+) more classes or modules))? (?:calls?|builds?) it by name"
)
_EXISTS = re.compile(r"`([\w.]+)` does not exist (before|after) megatron-core (\d+\.\d+\.\d+)")
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """What runs when a module is imported, whatever branch it stands in."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                yield from statements(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from statements(handler.body)


class Release:
    """The source of one release, read on demand."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.tree = cache(self._tree)
        self.home = cache(self._home)
        self.text = cache(self._text)

    def _tree(self, module: str) -> tuple[ast.Module, bool] | None:
        path = self._folder / module.replace(".", "/")
        for file, is_package in ((path.with_suffix(".py"), False), (path / "__init__.py", True)):
            if file.is_file():
                return ast.parse(file.read_bytes()), is_package
        return None

    def source_of(self, module: str, node: ast.ImportFrom) -> str:
        """The module that a `from` import names."""
        found = self.tree(module)
        parts = module.split(".") if found is not None and found[1] else module.split(".")[:-1]
        above = parts[: len(parts) - node.level + 1] if node.level else []
        return ".".join([*above, *filter(None, [node.module])])

    def _home(self, module: str, name: str, depth: int = 0) -> Place | None:
        """Where a name of a module is defined."""
        found = self.tree(module)
        if found is None or depth > 12:
            return None
        imported: Place | None = None
        stars = []
        for node in statements(found[0].body):
            if isinstance(node, _Definition) and node.name == name:
                return module, name
            if isinstance(node, ast.ImportFrom):
                source = self.source_of(module, node)
                stars += [source for alias in node.names if alias.name == "*"]
                imported = next(
                    ((source, one.name) for one in node.names if (one.asname or one.name) == name), imported
                )
            if isinstance(node, ast.Assign) and name in {one.id for one in node.targets if isinstance(one, ast.Name)}:
                if isinstance(node.value, ast.Name) and node.value.id != name:
                    return self.home(module, node.value.id, depth + 1)
                if imported is None and getattr(node.value, "value", ...) is not None:
                    return module, name
        if imported is not None:
            inner = ".".join(imported)
            return (inner, "") if self.tree(inner) else self.home(*imported, depth + 1) or imported
        starred = (self.home(star, name, depth + 1) for star in stars)
        below = f"{module}.{name}"
        return next(filter(None, starred), (below, "") if self.tree(below) else None)

    def resolve(self, dotted: str) -> tuple[str, list[str]] | None:
        """The module of a dotted name, and the names in it."""
        parts = dotted.split(".")
        for count in range(len(parts), 0, -1):
            if self.tree(module := ".".join(parts[:count])):
                rest = parts[count:]
                while rest and (place := self.home(module, rest[0])) is not None and not place[1]:
                    module, rest = place[0], rest[1:]
                if rest and (place := self.home(module, rest[0])) is not None:
                    return place[0], [place[1], *rest[1:]]
                return None if rest else (module, [])
        return None

    def _text(self, dotted: str) -> str | None:
        """The code of a name without docstrings; of a method that of the class, or of its first base that has it."""
        place = self.resolve(dotted)
        if place is not None and not self.tree(place[0]):
            return ".".join([place[0], *place[1]])  # from outside: which code it is, is not known
        return self._code(*place) if place is not None else None

    def _code(self, module: str, names: list[str], depth: int = 0) -> str | None:
        found = self.tree(module)
        if found is None or depth > 12:
            return None
        if not names:
            return ast.unparse(found[0])
        own = [one for one in statements(found[0].body) if names[0] in _bound(one)]
        if len(names) == 1:
            return "\n".join(map(_bare, own)) or None
        for owner in (one for one in own if isinstance(one, ast.ClassDef)):
            if inner := [one for one in statements(owner.body) if names[1] in _bound(one)]:
                return "\n".join(map(_bare, inner))
            for base in owner.bases:
                place = self.home(module, ast.unparse(base).rpartition(".")[2])
                if place is not None and (code := self._code(place[0], [place[1], *names[1:]], depth + 1)):
                    return code
        return None

    @cache  # noqa: B019 - a release lives as long as the program
    def callers(self) -> dict[Place, set[Place]]:
        """Who calls each function and builds each class of a module: classes, or modules outside of classes."""
        found: dict[Place, set[Place]] = defaultdict(set)
        for file in sorted(self._folder.glob("megatron/**/*.py")):
            module = ".".join(file.relative_to(self._folder).with_suffix("").parts).removesuffix(".__init__")
            tree = self.tree(module)
            assert tree is not None
            names = dict[str, Place]()
            for node in ast.walk(tree[0]):
                if isinstance(node, ast.ImportFrom):
                    names |= {one.asname or one.name: (self.source_of(module, node), one.name) for one in node.names}
                elif isinstance(node, ast.Import):
                    names |= {one.asname: (one.name, "") for one in node.names if one.asname}
            self._collect(tree[0], module, module.rpartition(".")[2], names, found)
        return found

    def _collect(
        self, node: ast.AST, module: str, scope: str, names: dict[str, Place], found: dict[Place, set[Place]]
    ) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and (place := self._called(child.func, module, names)) and place[1]:
                found[place].add((module, scope))
            inner = child.name if isinstance(child, ast.ClassDef) and isinstance(node, ast.Module) else scope
            self._collect(child, module, inner, names, found)

    def _called(self, node: ast.expr, module: str, names: dict[str, Place]) -> Place | None:
        if isinstance(node, ast.Name):
            if (place := self.home(module, node.id)) is not None or node.id not in names:
                return place
            source, name = names[node.id]
            inner = f"{source}.{name}".rstrip(".")
            return (inner, "") if self.tree(inner) else self.home(source, name)
        if isinstance(node, ast.Attribute):
            above = self._called(node.value, module, names)
            return self.home(above[0], node.attr) if above is not None and not above[1] else None
        return None


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, _Definition):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def _bare(node: ast.stmt) -> str:
    tree = ast.parse(ast.unparse(node))
    for one in ast.walk(tree):
        if isinstance(one, _Definition) and ast.get_docstring(one) is not None:
            one.body = one.body[1:] or [ast.Pass()]
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            one.returns = None
        if isinstance(one, ast.arg):
            one.annotation = None
    return ast.unparse(tree)


class Oracle:
    """What all releases say of a name."""

    def __init__(self, folder: Path) -> None:
        versions = sorted(
            (one.name for one in folder.iterdir()), key=lambda one: [int(part) for part in one.split(".")]
        )
        self.releases = {version: Release(folder / version) for version in versions}
        self._newest = {version.rpartition(".")[0]: version for version in versions}  # of each minor release

    def history(self, target: str, said: str) -> bool:
        """Whether a sentence on when something changed is right."""
        texts = [(minor, self.releases[newest].text(target)) for minor, newest in self._newest.items()]
        pairs = list(pairwise(texts))
        changed = [now for (_, old), (now, new) in pairs if old is not None and new is not None and old != new]
        gone = [now for (_, old), (now, new) in pairs if old is not None and new is None]
        told = re.findall(r"0\.\d+", said)
        if counted := re.match(r"Changed in (\d+) of \d+ releases, last in (0\.\d+)", said):
            return len(changed) == int(counted[1]) and changed[-1] == counted[2]
        if said.startswith("Changed in"):
            return told == [*changed, *gone]
        if said.startswith("Gone since"):
            return told[:1] == gone[:1]
        first = next((minor for minor, text in texts if text is not None), "")
        return not changed and first == told[0]

    def callers(self, target: str, judged: list[str], who: str, more: int) -> bool:
        """Whether one of the judged releases has just so many callers, and this one among them."""
        known = [version for version in judged if version in self.releases] or list(self.releases)[-1:]
        for release in (self.releases[version] for version in known):
            place, module = release.resolve(target), target.rpartition(".")[0]
            found = release.callers().get((place[0], place[1][0]), set()) if place and len(place[1]) == 1 else set()
            if place is not None and (tree := release.tree(module)) and module != place[0] and not tree[1]:
                found = {one for one in found if one[0] == module}  # replaced in one module that imports it
            if len(found) == more + 1 and who in {scope for _, scope in found}:
                return True
        return False

    def border(self, target: str, way: str, version: str) -> bool:
        """Whether a name is there from a release on, or up to it."""
        versions = list(self.releases)
        at = versions.index(version) + (1 if way == "after" else -1)
        other = self.releases[versions[at]] if 0 <= at < len(versions) else None
        return self.releases[version].text(target) is not None and (other is None or other.text(target) is None)


def check(report: Path, oracle: Oracle, counts: Counter[tuple[str, bool]]) -> None:
    """Hold one report to the sources, and print what does not fit."""
    told = json.loads(report.read_text())
    judged = sorted({version for one in told["judged"] for version in one["releases"]})
    for finding in told["findings"]:
        target, evidence = finding["target"], finding["evidence"] or ""
        if not target.startswith("megatron.core."):
            continue
        answers: list[tuple[str, str, bool]] = []
        if said := _HISTORY.search(evidence):
            answers.append(("history", said[0], oracle.history(target, said[0])))
        if said := _CALLERS.search(evidence):
            more = int(said[3] or bool(said[2]))
            answers.append(("callers", said[0], oracle.callers(target, judged, said[1], more)))
        borders = (said for said in _EXISTS.finditer(finding["message"]) if target.endswith(f".{said[1]}"))
        answers += [("names", said[0], oracle.border(target, said[2], said[3])) for said in borders]
        for kind, sentence, right in answers:
            counts[kind, right] += 1
            if not right:
                print(f"{report.stem} {finding['path']}:{finding['line']} {target}: {sentence}")


def main() -> None:
    """Check all reports, and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("reports", type=Path, nargs="+")
    options = parser.parse_args()
    oracle, counts = Oracle(options.sources), Counter[tuple[str, bool]]()
    for report in options.reports:
        check(report, oracle, counts)
    for kind in ("history", "callers", "names"):
        print(f"{kind}: {counts[kind, True]} as the sources say, {counts[kind, False]} to be read")


if __name__ == "__main__":
    main()
