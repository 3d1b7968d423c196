"""`del GPTModel.forward` and `delattr(GPTModel, "forward")`: patches, unless they take back what the file has set."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from mcore_unpatch.megatron import api
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.scopes import Site, path_text


def from_module(installs: Iterable[Install], resolver: Resolver) -> list[Install]:
    """What a file removes from Megatron's classes and modules and has not put there."""
    known = {(install.owner, install.attribute) for install in installs}
    found = []
    for site, subject, names in _deleted(resolver):
        base = resolver.at(site).expr(subject)
        if base is None or not base.is_core or base.node is not None or base.kind not in {"class", "module"}:
            continue
        has = api.in_module if base.kind == "module" else api.has_callable
        shape = f"{base.kind}-attr" if isinstance(site.node, ast.Delete) else "setattr"
        found += [
            Install(site, site.node, f"{base.name}.{name}", shape, base.sure, base.why, None, base.name, name, subject)
            for name in names
            if has(base.name, name) and (base.name, name) not in known
        ]
    return found


def _deleted(resolver: Resolver) -> Iterator[tuple[Site, ast.expr, list[str]]]:
    for site in resolver.model.sites:
        if isinstance(site.node, ast.Delete) and isinstance(site.target, ast.Attribute):
            yield site, site.target.value, [site.target.attr]
    for site in resolver.model.calls:
        if isinstance(site.node, ast.Call) and path_text(site.node.func) == "delattr" and len(site.node.args) == 2:
            subject, name = site.node.args
            yield site, subject, strings(name, resolver.at(site))
