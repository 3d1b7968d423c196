"""A patch that newer Megatrons do not need gets an upper bound, where the release is asked for already.

`if __version__ >= "0.16.0":` becomes `if "0.16.0" <= __version__ < "0.17.0":`, with the reason above it. On the older
ones it runs as before.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mcore_unpatch.codemods.changes import Asked, Insert, Reason, Replace
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron.answers import Answer, answers
from mcore_unpatch.megatron.versions import show

_LOWER = {ast.GtE: "<=", ast.Gt: "<"}


def bounds(bench: Workbench, patches: Sequence[Finding], options: Options) -> tuple[list[Asked], str]:
    """The changes that bound all of some patches; none, and why, where one cannot be bounded."""
    asked: list[Asked] = []
    for finding in patches:
        made = _bound(bench, finding) if options.wants(finding.rule) else []
        if not made:
            name = ".".join(finding.target.split(".")[-2:])
            return [], f"`{name}` stays patched in {finding.path}, line {finding.line}: move that patch first"
        asked += made
    return asked, ""


def _bound(bench: Workbench, finding: Finding) -> list[Asked]:
    row = next((answer for answer in answers() if answer.name == finding.answer), None)
    if row is None or row.verdict != "delete" or not row.needs:
        return []
    for guard in finding.live.guards:
        path = guard.path or finding.path
        source = bench.readable(path) if path in bench.editable else None
        for node in source.every(ast.If) if source else ():
            if (
                source
                and node.lineno <= guard.line <= (node.end_lineno or 0)
                and (change := _change(source, node, row))
            ):
                why = row.way.removeprefix("nothing is needed: ").partition(" (megatron-core")[0]
                title = f"only before Megatron Core {show(row.needs)}; since then {why}"
                reason = Reason(finding.rule, "exact", title, (), guard.line)
                said = Insert(node, node.lineno, f"# {title[:1].upper()}{title[1:]}")
                return [Asked(source, said, reason), Asked(source, change, reason)]
    return []


def _change(source: Source, node: ast.If, row: Answer) -> Replace | None:
    """The comparison of a test that asks for a version or a later one, with an upper bound."""
    for test in (one for one in ast.walk(node.test) if isinstance(one, ast.Compare) and len(one.ops) == 1):
        sign, right = _LOWER.get(type(test.ops[0])), test.comparators[0]
        texts = [one.value for one in ast.walk(right) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        if sign and "version" in source.text(test.left).lower() and len(texts) == 1 and texts[0][:1].isdigit():
            until = ".".join([*show(row.needs).split("."), "0", "0"][: texts[0].count(".") + 1])
            low = source.text(right)
            return Replace(test, f"{low} {sign} {source.text(test.left)} < {low.replace(texts[0], until)}")
    return None
