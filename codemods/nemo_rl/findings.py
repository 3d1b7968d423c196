"""The uses of NeMo RL's linear cross-entropy fusion as findings: its patch function, and the flag of each call."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.nemo_rl.contract import COMPAT, FLAG, RULE, fusion_kwargs
from mcore_unpatch.codemods.quote import Quote
from mcore_unpatch.codemods.shims.exports import Exports
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.findings import USE, Finding
from mcore_unpatch.rules import rules

_INSTEAD = f"pass `**{fusion_kwargs('model')}` from `{COMPAT}`"


def flag_places(source: Source) -> list[ast.expr]:
    """Every place that gives, asks for or takes out the flag: a value by keyword, or the text of a key."""
    if FLAG.encode() not in source.data:
        return []
    keywords = [node.value for node in source.every(ast.keyword) if node.arg == FLAG]
    return [*keywords, *(node for node in source.every(ast.Constant) if node.value == FLAG)]


def flags(exports: Exports) -> Iterator[Finding]:
    """A finding for each line that has to do with the flag."""
    rule = rules()[RULE]
    for path, source in exports.sources.items():
        if path in exports.definitions:
            continue
        quote = Quote(source)
        for node in {node.lineno: node for node in reversed(flag_places(source))}.values():
            message = f"uses `{FLAG}`, which only a patch reads: {rule.summary}"
            yield quote.finding(node, RULE, USE, rule.seam, FLAG, message, _INSTEAD)
