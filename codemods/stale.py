"""What edits leave for people: texts that still speak of a patch which is gone."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Edit, Remark
from mcore_unpatch.editing.source import Source, lines_of
from mcore_unpatch.findings.finding import OWN_MODELS, Finding

_PATCHING = re.compile(r"patch|wrap|monkey|replac|overrid", re.IGNORECASE)


def left_behind(
    bench: Workbench, findings: Sequence[Finding], gone: Sequence[Finding], edits: Sequence[Edit]
) -> Iterator[Remark]:
    """A remark for each text that is of no more use once all edits are made."""
    by_path: defaultdict[str, list[Edit]] = defaultdict(list)
    for edit in edits:
        by_path[edit.path].append(edit)
    for path in {finding.path: None for finding in gone if finding.path in by_path}:
        # Texts about a model of one's own stay true.
        here = [one for one in gone if one.path == path and "." in one.target and one.shape not in OWN_MODELS]
        staying = [finding for finding in findings if finding.path == path and finding not in gone]
        ends = ([1 + bench.data(path).count(b"\n", 0, end) for end in (edit.start, edit.end)] for edit in by_path[path])
        changed = {line for first, last in ends for line in range(first, last)}
        yield from _texts(bench.source(path), here, staying, changed)


def _texts(source: Source, gone: Sequence[Finding], staying: Sequence[Finding], changed: set[int]) -> Iterator[Remark]:
    """Comments, docstrings and messages that name what was patched: a person has to read what they say now."""
    lines = [number for number in range(1, len(source.lines) + 1) if source.is_comment(number)]
    for node in source.every(ast.Constant):
        if isinstance(node.value, str) and " " in node.value:
            lines += range(node.lineno, (node.end_lineno or node.lineno) + 1)
    patched = {part for finding in staying for part in finding.target.split(".")[-2:]}
    told = set(changed)
    for finding in gone:
        owner, name = finding.target.split(".")[-2:]
        # A word of many meanings, such as `forward`, is meant only in the function that patches it.
        common, kind = "_" not in name.strip("_"), re.sub(r"^(_?(?:set|get)_|)", "", name)
        functions = map(lines_of, source.every(ast.FunctionDef, ast.AsyncFunctionDef))
        around = {line for whole in functions if finding.line in whole for line in whole}
        words = {kind: r"\b", owner: r"\b", name: r"(?<![\w.])" if common else r"\b"}
        for number in sorted(set(lines) - told):
            line = source.line(number)
            said = {word for word, edge in words.items() if re.search(rf"{edge}{word}\b", line)} - patched
            meant = said if not common or number in around else said & {owner}
            deleted = name in meant and not common and finding.verdict == "delete"
            if meant and (deleted or _PATCHING.search(line)):
                told.add(number)
                text = f"this text still speaks of the patch of `{owner}.{name}`, which is gone"
                yield Remark(source.path, number, finding.rule, "by-hand", text)
