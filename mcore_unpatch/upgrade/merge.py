"""A copy of Megatron's function, three-way: what upstream changed since, what the team changed, whether both fit."""

from __future__ import annotations

import ast
import builtins
import re
import tempfile
import textwrap
from difflib import unified_diff
from importlib import import_module
from pathlib import Path

from mcore_unpatch.editing.edits import Edit
from mcore_unpatch.editing.source import Span
from mcore_unpatch.library.definitions import Body
from mcore_unpatch.library.digests import digest_of, parts
from mcore_unpatch.library.model import Model
from mcore_unpatch.library.surroundings import local_names
from mcore_unpatch.library.syntax import Function, bound_names
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.records import record
from mcore_unpatch.repository import git
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.run import UpgradeReport
from mcore_unpatch.upgrade.sources import Sources, cut

_CONFLICT = re.compile(r"^<{7} ", re.MULTILINE)


@record
class Merge:
    """One copy: the release it was made from, upstream's changes since, the team's own, and both together."""

    release: str
    upstream: str  # unified diff
    own: str  # unified diff
    merged: str
    conflicts: int
    unknown: tuple[str, ...] = ()  # names that upstream's changes use, and neither the file nor an import gives
    imports: tuple[str, ...] = ()  # lines that the file needs for them

    @property
    def is_clean(self) -> bool:
        """Whether both sets of changes fit, and upstream changed anything at all."""
        return not self.conflicts and not self.unknown and bool(self.upstream)


def merge(fate: Fate, report: UpgradeReport, sources: Sources) -> Merge | None:
    """Merge what upstream did since the copy was made into the copy; None where a source is missing."""
    case, copied = fate.case, fate.copy
    if case is None or copied is None or fate.target.before is None or fate.target.after is None:
        return None
    base = sources.text(copied.release, fate.target.before.name)
    theirs = sources.text(report.new.label, fate.target.after.name)
    if base is None or theirs is None:
        return None
    assert case.new.function is not None and case.new.home is not None
    path = case.new.home.model.path
    text = (Path(report.scanned.top) / path).read_text(encoding="utf-8")
    ours = cut(text.splitlines(keepends=True), case.new.function)
    name = getattr(case.new.function, "name", "")
    # The function under the name the copy has, so that the name is no difference.
    base, theirs = (re.sub(r"(?<=\bdef )\w+", name, each, count=1) for each in (base, theirs))
    # A copy that only looks different (comments, line breaks, annotations) takes upstream's text as it is.
    merged = theirs if _same(ours, base) else _merged(ours, base, theirs)
    conflicts = len(_CONFLICT.findall(merged))
    known = _free_names(ours) | bound_names(ast.parse(text).body)[1]
    lacking = sorted(_free_names(merged) - known) if not conflicts else []
    module = fate.target.after.name
    while module and ((fact := report.new.facts.get(module)) is None or fact.kind != "module"):
        module = module.rpartition(".")[0]
    imports = {name: _import_of(name, module, report.new) for name in lacking}
    return Merge(
        copied.release,
        _diff(base, theirs, f"megatron-core {copied.release}", f"megatron-core {report.new.label}"),
        _diff(base, ours, f"megatron-core {copied.release}", path),
        merged,
        conflicts,
        tuple(name for name, line in imports.items() if not line),
        tuple(dict.fromkeys(filter(None, imports.values()))),
    )


def _import_of(name: str, module: str, model: Model) -> str:
    """The line that gives a file what upstream's module knows by a name; empty where there is none."""
    fact = model.facts.get(f"{module}.{name}")
    if fact is None:
        plain = ("typing", "dataclasses", "abc", "collections")
        standard = next((module for module in plain if name in dir(import_module(module))), "")
        return f"from {standard} import {name}" if standard else ""
    source, _, last = (fact.detail if fact.kind == "import" else f"{module}.{name}").rpartition(".")
    named = last if last == name else f"{last} as {name}"
    return f"from {source} import {named}" if source else f"import {named}"


def edits(report: UpgradeReport, merges: list[tuple[Fate, Merge]], conflicts: bool) -> list[Edit]:
    """The clean merges, with the imports they need; with `conflicts` the others too, in git's markers."""
    found: list[Edit] = []
    for fate, made in merges:
        if not (made.is_clean or (conflicts and made.conflicts)) or fate.case is None or fate.case.new.home is None:
            continue
        model, node = fate.case.new.home.model, fate.case.new.function
        assert isinstance(node, ast.stmt)
        source = report.source(model.path)
        text = textwrap.indent(made.merged, source.indentation(node), _is_code)
        above = [item for item in model.tree.body if isinstance(item, ast.Import | ast.ImportFrom)]
        last = above[-1].end_lineno or 0 if above else 0
        at = source.line_span(last, last).end if last else 0
        for span, new in (
            (source.line_span(node.lineno, node.end_lineno or node.lineno), text),
            (Span.at(at), "".join(f"{line}\n" for line in made.imports)),
        ):
            found += [Edit(source.path, "", "safe", *span, source.encode(new), "")] if new else []
    return found


def _is_code(line: str) -> bool:
    """Whether a line is indented: not one that marks a conflict."""
    return bool(line.strip()) and not line.startswith(("<<<<<<< ", "||||||| ", "=======\n", ">>>>>>> "))


def _free_names(function: str) -> set[str]:
    """The names a function reads and does not bind itself."""
    [node] = ast.parse(function).body
    assert isinstance(node, Function)
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return names - local_names(Body("", "", node), "").keys() - {node.name, *vars(builtins)}


def _same(ours: str, base: str) -> bool:
    left, right = ast.parse(ours).body[0], ast.parse(base).body[0]
    return digest_of(parts(left, LIBRARY.top)) == digest_of(parts(right, LIBRARY.top))


def _merged(ours: str, base: str, theirs: str) -> str:
    with tempfile.TemporaryDirectory(prefix="unpatch-") as folder:
        texts = {"yours": ours, "base": base, "upstream": theirs}
        for name, text in texts.items():
            Path(folder, name).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        return git.run(Path(folder), "merge-file", "-p", "-q", "--diff3", *texts, codes=range(128)).decode()


def _diff(before: str, after: str, old: str, new: str) -> str:
    return "".join(unified_diff(before.splitlines(True), after.splitlines(True), old, new))
