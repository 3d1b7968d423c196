"""What a patch does on a given Megatron release: the parameters it lacks, the values it returns, the hook it drops."""

from __future__ import annotations

import ast

from mcore_unpatch.megatron import facts, gone
from mcore_unpatch.megatron.signatures import signature
from mcore_unpatch.megatron.versions import RELEASES, Version, parse_version, show
from mcore_unpatch.scanner.conditions.literals import Place
from mcore_unpatch.scanner.conditions.live import Run
from mcore_unpatch.scanner.judging.replacement import Replacement
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.nodes import walk


def describe(install: Install, replacement: Replacement, version: Version) -> list[str]:
    """Sentences on what breaks, most severe first."""
    found = [*_parameters(install, replacement, version), *_returns(install, replacement, version)]
    found += _dropped_hook(install, replacement, version)
    since, reason = facts.INERT_SINCE.get((install.owner, install.attribute), ((99, 0), ""))
    if since <= version:
        found.append(f"has no effect on megatron-core {show(since)}+, where {reason}")
    for name in (install.target, install.owner):
        if gone.is_gone(name, version):
            found.append(_without(name))
    return found


def _without(name: str) -> str:
    last, now = parse_version(gone.last_releases()[name]), facts.NOW.get(name)
    instead = f"; use `{now}`" if now else ""
    return f"`{name.rpartition('.')[2]}` does not exist after megatron-core {show(last)}{instead}"


def uses_gone(replacement: Replacement, version: Version) -> list[str]:
    """Names of Megatron's that the replacement reads and the release no longer has."""
    home, function = replacement.home, replacement.function
    if home is None or function is None or replacement.words.isdisjoint(gone.words()):
        return []
    newest = [release for release in RELEASES if parse_version(release) == version][-1:]
    found: dict[str, int] = {}
    for node in walk(function):
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load):
            if (node.attr if isinstance(node, ast.Attribute) else node.id) not in gone.words():
                continue
            scope, block = home.model.at(node.lineno)
            ref = home.expr(node, scope, block, node.lineno)
            if ref is None or not ref.sure or ref.node is not None or not gone.is_gone(ref.name, version):
                continue
            if all(Run(release).runs(Place(home, scope, block, node.lineno)) is not False for release in newest):
                found.setdefault(ref.name, node.lineno)
    return [f"line {line} uses what is gone: {_without(name)}: AttributeError" for name, line in found.items()]


def _parameters(install: Install, replacement: Replacement, version: Version) -> list[str]:
    expected = signature(install.owner, install.attribute, version)
    accepted = replacement.parameters
    if expected is None or accepted is None or install.adds:
        return []
    names, any_keyword = accepted
    by_keyword = (install.owner, install.attribute) in facts.CALLED_IN_FULL
    if replacement.function is not None and replacement.function.args.vararg is not None:
        any_keyword = any_keyword or not replacement.bound
    found = []
    missing = [name for name in expected.parameters if name not in names]
    if missing and not any_keyword:
        since = max(expected.since[name] for name in missing)
        what = f"lacks {_quoted(missing)}"
        if by_keyword:
            found.append(f"{what}: TypeError on megatron-core {show(since)}+")
        else:
            found.append(f"{what}: TypeError on megatron-core {show(since)}+ when a caller passes it")
    found += _unfilled(replacement, expected.parameters, version, by_keyword)
    return found


def _unfilled(replacement: Replacement, expected: tuple[str, ...], version: Version, by_keyword: bool) -> list[str]:
    """Parameters without a default that this release does not pass."""
    assert replacement.function is not None
    spec = replacement.function.args
    positional = [*spec.posonlyargs, *spec.args]
    required = [arg.arg for arg in positional[: len(positional) - len(spec.defaults)]]
    required += [arg.arg for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is None]
    # Names of what is passed by position are free to differ; there only a surplus is an error.
    own = 1 if replacement.bound or by_keyword else 0
    surplus = [name for name in required[own:] if name not in expected]
    if surplus and (by_keyword or len(required) - own > len(expected)):
        return [f"requires {_quoted(surplus)}, which megatron-core {show(version)} does not pass: TypeError"]
    return []


def _returns(install: Install, replacement: Replacement, version: Version) -> list[str]:
    history = facts.RETURNED_VALUES.get((install.owner, install.attribute))
    if history is None or replacement.function is None:
        return []
    since, wanted = [entry for entry in history if entry[0] <= version][-1]
    counts = replacement.returned_counts
    if counts and wanted not in counts:
        given = ", ".join(str(count) for count in sorted(counts))
        return [f"returns {given} values where megatron-core {show(since)}+ unpacks {wanted}: ValueError"]
    return []


def _dropped_hook(install: Install, replacement: Replacement, version: Version) -> list[str]:
    if (install.owner, install.attribute) not in facts.HOOK_CARRIERS or version < facts.HOOK_SINCE:
        return []
    accepted = replacement.parameters
    if accepted is None or replacement.function is None:
        return []
    names, any_keyword = accepted
    hook = facts.HOOK_ARGUMENTS[0]
    if hook in names and not replacement.uses(hook):
        return [f"accepts `{hook}` but never calls it, so hooks are silently dropped"]
    keywords = replacement.function.args.kwarg
    if hook not in names and any_keyword and keywords is not None and drops(replacement.function, keywords.arg, hook):
        return [f"accepts `{hook}` in `**{keywords.arg}` but never calls it, so hooks are silently dropped"]
    return []


def drops(function: ast.AST, keywords: str, name: str) -> bool:
    """Whether `**keywords` is read for other names alone: it is never handed on, nor asked for `name`."""
    nodes = list(walk(function))
    keys = [key for node in nodes if (key := _key(node, keywords)) is not None]
    reads = sum(isinstance(node, ast.Name) and node.id == keywords for node in nodes)
    return name not in keys and len(keys) == reads


def _key(node: ast.AST, keywords: str) -> object:
    """The key of `keywords["key"]`, `keywords.get("key")`, `keywords.pop("key")` and `"key" in keywords`."""
    subject: ast.expr | None = None
    key: ast.expr | None = None
    match node:
        case ast.Subscript():
            subject, key = node.value, node.slice
        case ast.Call(func=ast.Attribute(attr="get" | "pop")) if node.args:
            subject, key = node.func.value, node.args[0]  # type: ignore[attr-defined]
        case ast.Compare(ops=[ast.In() | ast.NotIn()]):
            subject, key = node.comparators[0], node.left
    named = isinstance(subject, ast.Name) and subject.id == keywords
    return key.value if named and isinstance(key, ast.Constant) else None


def _quoted(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
