"""What a patch does on a given Megatron release: the parameters it lacks, the values it returns, the hook it drops."""

from __future__ import annotations

from mcore_unpatch.megatron import facts
from mcore_unpatch.megatron.signatures import signature
from mcore_unpatch.megatron.versions import Version, show
from mcore_unpatch.scanner.installs import Install
from mcore_unpatch.scanner.replacement import Replacement


def describe(install: Install, replacement: Replacement, version: Version) -> list[str]:
    """Sentences on what breaks, most severe first."""
    found = [*_parameters(install, replacement, version), *_returns(install, replacement, version)]
    found += _dropped_hook(install, replacement, version)
    since, reason = facts.INERT_SINCE.get((install.owner, install.attribute), ((99, 0), ""))
    if since <= version:
        found.append(f"has no effect on megatron-core {show(since)}+, where {reason}")
    for name in (install.target, install.owner):
        last, now = facts.GONE.get(name, ((99, 0), ""))
        if version > last:
            found.append(f"`{name.rpartition('.')[2]}` does not exist after megatron-core {show(last)}; use `{now}`")
    return found


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
    if hook not in names and any_keyword and keywords is not None and not replacement.uses(keywords.arg):
        return [f"accepts `{hook}` in `**{keywords.arg}` but never calls it, so hooks are silently dropped"]
    return []


def _quoted(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return shown + (f" and {len(names) - 4} more" if len(names) > 4 else "")
