"""`unittest.mock.patch`, pytest's `monkeypatch` and `mocker`, on things of Megatron Core."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes.install import Install, core_target
from mcore_unpatch.scanner.sources.scopes import Site, path_text

_MOCKERS = re.compile(
    r"(?:^|\.)(?:mock|mocker)\.patch(?:\.|$)|^patch(?:\.|$)|(?:^|\.)monkeypatch\.|^mp\.set(?:attr|item)$"
)


def is_mock(text: str, site: Site, resolver: Resolver) -> bool:
    """Whether a call, written as `text`, is one of a mocking library."""
    if not _MOCKERS.search(text):
        return False
    root = text.partition(".")[0]
    if root != "patch":
        return True
    ref = resolver.expr(ast.Name(root, ast.Load()), site.scope, site.block, site.node.lineno)
    return ref is None or (ref.kind == "external" and "mock" in ref.name)


def from_mock(site: Site, resolver: Resolver, text: str) -> list[Install]:
    """What a mock replaces."""
    call = site.node
    assert isinstance(call, ast.Call)
    leaf = text.rpartition(".")[2]
    if not call.args:
        return []
    first = call.args[0]
    second = call.args[1] if len(call.args) > 1 else None

    def install(target: str) -> list[Install]:
        owner, _, attribute = target.rpartition(".")
        return [Install(site, call, target, "mock", True, "", None, owner, attribute, mock=True)]

    dotted = resolver.string(first, site.scope, site.block, call.lineno)
    if dotted is not None and within(dotted):
        return install(core_target(dotted))
    if leaf in {"dict", "setitem", "delitem"} and (path_text(first) or dotted or "").endswith("sys.modules"):
        keys = second.keys if isinstance(second, ast.Dict) else [second]
        names = [n for key in keys for n in resolver.strings(key, site.scope, site.block, call.lineno)]
        return [i for n in names if within(n) for i in install(n)]
    if leaf in {"object", "setattr", "delattr", "multiple"}:
        base = resolver.expr(first, site.scope, site.block, call.lineno)
        if base is None or not base.is_core or base.kind not in {"class", "module", "instance"}:
            return []
        names = resolver.strings(second, site.scope, site.block, call.lineno) or ["*"]
        return [i for name in names for i in install(f"{base.via or base.name}.{name}")]
    return []
