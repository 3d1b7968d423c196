"""Definitions of Megatron that a patch file changes, held to the rest of the release that it is applied to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mcore_unpatch.judge.asked import raised
from mcore_unpatch.judge.callers import callers
from mcore_unpatch.judge.demands import CALL, Demands
from mcore_unpatch.judge.instead import leaf, short, unfit
from mcore_unpatch.library.fact import Fact, parameters
from mcore_unpatch.library.model import Known, Model
from mcore_unpatch.megatron import known
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.scopes import FunctionNode

Texts = Mapping[str, bytes]  # the files that a patch file changes, as it leaves them


def broken(texts: Texts, facts: Mapping[str, Fact], changed: set[str], model: Model) -> list[str]:
    """What raises once the files are so: `facts` are theirs, `changed` the definitions that are not the release's."""
    said = [text for name in sorted(changed) for text in _callers(name, facts, changed, model)]
    project = Project(texts.__contains__, texts.__getitem__)
    for path in texts:
        said += _asked(path, project, facts, changed, model)
    return list(dict.fromkeys(said))


def _callers(name: str, facts: Mapping[str, Fact], changed: set[str], model: Model) -> Iterator[str]:
    """Calls of the release, in code that the patch file leaves as it is, which the changed definition does not take."""
    now, before = facts.get(name), model.facts.get(name)
    usages = [usage for usage in callers(model, name) if usage.place not in changed and usage.sure]
    if before is None or before.kind != "function" or not usages:
        return
    if now is None:
        yield f"takes `{short(name)}` away, which `{short(usages[0].place)}` calls: AttributeError"
        return
    if now.kind != "function" or now.trait("by") is not None:
        return
    taken, gives = parameters(model.detail_for_callers(Known(name, now))), now.trait("gives")
    for usage in usages:
        call = usage.call
        if call is not None and (wrong := taken.misfit(call)):
            yield f"changes `{short(name)}`, and `{short(usage.place)}` {unfit(wrong, 'it')}: TypeError"
            return
        if call is not None and call.unpacked and gives and int(gives) != call.unpacked:
            unpacks = f"`{short(usage.place)}` unpacks {call.unpacked}"
            yield f"changes `{short(name)}`, which gives {gives} values where {unpacks}: ValueError"
            return


def _asked(path: str, project: Project, facts: Mapping[str, Fact], changed: set[str], model: Model) -> Iterator[str]:
    """What the changed functions of a file ask of the release, and it has not."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    home = project.resolver(path)
    for node, scope in home.model.functions.items():
        owner = getattr(scope.parent.node, "name", "") if scope.parent is not None else ""
        name = ".".join(filter(None, (module, owner, getattr(node, "name", ""))))
        if name not in changed or not isinstance(node, FunctionNode):
            continue
        for demand in Demands(follow=False).of_code(node, home, CALL):
            if demand.name not in facts and known.ever(demand.name):
                for statement in raised(demand, model):
                    yield f"changes `{leaf(name)}`, where {statement.text}: {statement.exception}"
