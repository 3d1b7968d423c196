"""Who calls a function of Megatron's in the library."""

from __future__ import annotations

from functools import lru_cache

from mcore_unpatch.library.model import Model, Usage


@lru_cache(4096)
def callers(model: Model, target: str) -> list[Usage]:
    """Who calls it in the library: those that are certain, else those told by a method's name."""
    if (fact := model.facts.get(target)) is not None and fact.kind == "value" and fact.trait("unread") is not None:
        return []  # another name of what is called
    taken, family = model.called_with(target), model.lineage(target.rpartition(".")[0])
    own = model.find(target)
    gives = int((own.fact.trait("gives") if own is not None else None) or 0)
    calls = []
    for usage in model.calls(target):
        assert usage.call is not None
        # A call that the library's own function would not take is one of something else: annotations can be too wide.
        is_own = usage.place.rpartition(".")[0] in family
        unpacks_other = bool(gives and usage.call.unpacked) and usage.call.unpacked != gives
        if is_own or ((taken is None or not taken.misfit(usage.call)) and not unpacks_other):
            calls.append(usage)
    calls = [usage for usage in calls if usage.sure] or calls
    return sorted(calls, key=lambda usage: len(model.lineage(usage.place.rpartition(".")[0])))  # subclasses last
