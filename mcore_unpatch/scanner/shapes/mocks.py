"""`unittest.mock.patch`, pytest's `monkeypatch` and `mocker`, on things of Megatron Core."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.megatron.versions import within
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.names.strings import string, strings
from mcore_unpatch.scanner.shapes.assignments import set_by_name
from mcore_unpatch.scanner.shapes.install import Install, core_target, parted
from mcore_unpatch.scanner.sources.scopes import Site, path_text

_MOCKERS = re.compile(
    r"(?:^|\.)(?:mock|mocker)\.patch(?:\.|$)|^patch(?:\.|$)|(?:^|\.)monkeypatch\.|^mp\.set(?:attr|item)$"
)

_IN_PROGRAMS = re.compile(r"^(?!mocker\.)(?:\w+\.)*patch(?:\.|$)")  # pytest's own work in tests alone


def is_mock(text: str, site: Site, resolver: Resolver) -> bool:
    """Whether a call, written as `text`, is one of a mocking library."""
    if text.endswith((".setattr", ".delattr", ".setitem")) and _is_made_here(text.partition(".")[0], site):
        return True
    if not _MOCKERS.search(text):
        return False
    root = text.partition(".")[0]
    if root != "patch":
        return True
    ref = resolver.at(site).expr(ast.Name(root, ast.Load()))
    return ref is None or (ref.kind == "external" and "mock" in ref.name)


def is_of_a_test(text: str, site: Site, resolver: Resolver) -> bool:
    """Whether a mock is there to test something: elsewhere it is a patch like any other."""
    function = site.scope.function
    name = getattr(function.node, "name", "") if function is not None else getattr(site.decorated, "name", "")
    in_program = _IN_PROGRAMS.search(text) or _is_made_here(text.partition(".")[0], site)
    return is_test(resolver.model.path) or name.startswith("test") or not in_program


def _is_made_here(name: str, site: Site) -> bool:
    """`mp = pytest.MonkeyPatch()`: not one that a test is handed."""
    made = [b.node.func for b in site.scope.bindings_of(name) if isinstance(b.node, ast.Call)]
    return any("MonkeyPatch" in (path_text(node) or "").split(".") for node in made)


def from_mock(site: Site, resolver: Resolver, text: str) -> list[Install]:
    """What a mock replaces."""
    call = site.call
    leaf = text.rpartition(".")[2]
    if not call.args:
        return []
    first = call.args[0]
    second = call.args[1] if len(call.args) > 1 else None

    new = next((k.value for k in call.keywords if k.arg in {"new", "side_effect"}), None)
    if new is None and leaf in {"object", "patch", "setattr"}:
        by_name = leaf == "patch" or (leaf == "setattr" and len(call.args) == 2)
        new = next(iter(call.args[1 if by_name else 2 :]), None)
    of_a_test = is_of_a_test(text, site, resolver)

    def install(target: str) -> list[Install]:
        return [Install(site, call, target, "mock", True, "", new, *parted(target), mock=of_a_test)]

    dotted = string(first, resolver.at(site))
    if dotted is not None and within(dotted):
        return install(core_target(dotted))
    if leaf in {"dict", "setitem", "delitem"} and "sys.modules" in (resolver.at(site).text(first), dotted):
        keys = second.keys if isinstance(second, ast.Dict) else [second]
        names = [n for key in keys for n in strings(key, resolver.at(site))]
        return [i for n in names if within(n) for i in install(n)]
    if leaf in {"object", "setattr", "delattr", "multiple"}:
        base = resolver.at(site).expr(first)
        if base is None or not base.is_core or base.kind not in {"class", "module", "instance"}:
            return []
        names = strings(second, resolver.at(site))
        if leaf == "multiple":
            names = [keyword.arg for keyword in call.keywords if keyword.arg]
        if not of_a_test:
            installs = set_by_name(site, resolver, first, base, names, new or call)
            for one in installs:
                one.shape = "mock"
            return installs
        names = names or ["*"]
        return [i for name in names for i in install(f"{base.via or base.name}.{name}")]
    return []
