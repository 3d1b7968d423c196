"""Models of the repository's own that keep the output hook from arriving, as findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from mcore_unpatch.effects.hook_takers import REFUSED, SWALLOWED, Hook, HookTaker, hook_takers
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import parts
from mcore_unpatch.megatron.versions import Version
from mcore_unpatch.survey.core import Core
from mcore_unpatch.survey.quoting import Text

_RULE = "MCU105"
_UNUSED = "but never calls it, so hooks are silently dropped"
_HOOK = Hook(*parts.HOOK)


def own_models(core: Core, versions: Callable[[str], tuple[Version, ...]], asked: Collection[str]) -> Iterator[Finding]:
    """The findings in some files; `versions` tells by path what a file is judged for."""
    for path in core.index.sources:
        if path in asked:
            releases = [core.megatrons.release(version) for version in versions(path)]
            for one in hook_takers(core.names, _HOOK, path, releases):
                yield _finding(one, Text(core.index.sources[path].decode(errors="replace").split("\n")))


def _finding(found: HookTaker, text: Text) -> Finding:
    place, name = f"`{found.owner}.{found.method}`", _HOOK.name
    message = f"accepts `{name}` {_UNUSED}"
    if found.dropped == REFUSED:
        message = f"takes no `{name}`: a TypeError for whoever passes the output hook"
    elif found.dropped == SWALLOWED:
        message = f"accepts `{name}` in `**{found.rest}` {_UNUSED}"
    steps = (
        f"Give {place} (line {found.line}) the parameters `output_processor=None, output_processor_context=None`.",
        f"Pass both on in the call on line {found.call}: Megatron takes them since 0.18."
        if found.call
        else "Call the processor with the hook's keywords, if there is one, where the output is made.",
    )
    return Finding(
        rule=_RULE,
        path=found.path,
        line=found.line,
        column=found.column,
        end_line=found.line,
        target=found.target,
        shape=found.shape,
        seam="output",
        message=f"{place} {message}",
        way="take `output_processor` and `output_processor_context`, and hand both on (megatron-core 0.18+)",
        by_hand=steps,
        source=text.between(found.line, found.line),
    )
