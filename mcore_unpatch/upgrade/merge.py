"""A copy of Megatron's function, three-way: what upstream changed since, what the team changed, whether both fit."""

from __future__ import annotations

import ast
import builtins
import re
import tempfile
import textwrap
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path

from mcore_unpatch import git
from mcore_unpatch.library.definitions import bound_names
from mcore_unpatch.library.digests import digest_of, parts
from mcore_unpatch.megatron.roots import LIBRARY
from mcore_unpatch.migrate.journal import NewContent
from mcore_unpatch.upgrade.fates import Fate
from mcore_unpatch.upgrade.run import UpgradeReport
from mcore_unpatch.upgrade.sources import Sources, cut

_CONFLICT = re.compile(r"^<{7} ", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Merge:
    """One copy: the release it was made from, upstream's changes since, the team's own, and both together."""

    release: str
    upstream: str  # unified diff
    own: str  # unified diff
    merged: str
    conflicts: int
    unknown: tuple[str, ...] = ()  # names that upstream's changes use and the file does not know

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
    name = _name(ours)
    base, theirs = _renamed(base, name), _renamed(theirs, name)
    # A copy that only looks different (comments, line breaks, annotations) takes upstream's text as it is.
    merged = theirs if _same(ours, base) else _merged(ours, base, theirs)
    return Merge(
        copied.release,
        _diff(base, theirs, f"megatron-core {copied.release}", f"megatron-core {report.new.label}"),
        _diff(base, ours, f"megatron-core {copied.release}", path),
        merged,
        conflicts := len(_CONFLICT.findall(merged)),
        () if conflicts else tuple(sorted(_free_names(merged) - _free_names(ours) - _bound_names(text))),
    )


def rewrites(report: UpgradeReport, merges: list[tuple[Fate, Merge]]) -> list[NewContent]:
    """The files with every clean merge in place; a result that is no Python is left out."""
    by_path: dict[str, list[tuple[int, int, str]]] = {}
    for fate, made in merges:
        if made.is_clean and fate.case is not None and fate.case.new.home is not None:
            node = fate.case.new.function
            assert node is not None
            last = node.end_lineno or node.lineno
            by_path.setdefault(fate.case.new.home.model.path, []).append((node.lineno, last, made.merged))
    found = []
    for path, pieces in sorted(by_path.items()):
        before = (Path(report.scanned.top) / path).read_bytes()
        lines = before.decode().splitlines(keepends=True)
        for first, last, text in sorted(dict.fromkeys(pieces), reverse=True):
            indent = re.match(r"\s*", lines[first - 1])
            lines[first - 1 : last] = [textwrap.indent(text, indent[0] if indent else "")]
        after = "".join(lines).encode()
        try:
            compile(after, path, "exec", dont_inherit=True)
        except SyntaxError:
            continue
        if after != before:
            found.append(NewContent(path, before, after))
    return found


def apply(report: UpgradeReport, merges: list[tuple[Fate, Merge]], allow_dirty: bool) -> None:
    """Write the clean merges under the rules of `migrate`: all files or none, with a journal that `undo` reads."""
    from mcore_unpatch.migrate import transaction, vcs
    from mcore_unpatch.migrate.lock import exclusive
    from mcore_unpatch.migrate.recovery import recover
    from mcore_unpatch.migrate.state import locate

    top = Path(report.scanned.top)
    state = locate(top)
    state.refuse_inside_work_tree()
    with exclusive(state.lock_file):
        recover(top)
        if changed := rewrites(report, merges):
            root = Path(report.scanned.root)
            vcs.refuse_unsafe(root, top, [item.path for item in changed], allow_dirty, allow_no_vcs=False)
            transaction.write(state, changed)


def _name(text: str) -> str:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    return node.name


def _free_names(function: str) -> set[str]:
    """The names a function reads and does not bind itself."""
    nodes = list(ast.walk(ast.parse(function)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in nodes if isinstance(node, ast.arg)} | set(vars(builtins))
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound.add(node.name)
    return {node.id for node in names} - bound


def _bound_names(module: str) -> set[str]:
    """The names that a module binds at its top."""
    return bound_names(ast.parse(module).body)[1]


def _same(ours: str, base: str) -> bool:
    left, right = ast.parse(ours).body[0], ast.parse(base).body[0]
    return digest_of(parts(left, LIBRARY.top)) == digest_of(parts(right, LIBRARY.top))


def _renamed(text: str, name: str) -> str:
    """The function under the name the copy has, so that the name is no difference."""
    return re.sub(r"(?<=\bdef )\w+", name, text, count=1)


def _merged(ours: str, base: str, theirs: str) -> str:
    with tempfile.TemporaryDirectory(prefix="unpatch-") as folder:
        for name, text in (("yours", ours), ("base", base), ("upstream", theirs)):
            (Path(folder) / name).write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
        files = ["yours", "base", "upstream"]
        return git.run(Path(folder), "merge-file", "-p", "-q", "--diff3", *files, codes=range(128)).decode()


def _diff(before: str, after: str, old: str, new: str) -> str:
    return "".join(unified_diff(before.splitlines(True), after.splitlines(True), old, new))
