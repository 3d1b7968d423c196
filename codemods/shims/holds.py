"""Why a downstream's patches stay: a patch, its undoing and what relies on it move together, or not at all."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from mcore_unpatch.codemods.shims.contract import Contract
from mcore_unpatch.codemods.shims.places import Flow, Places
from mcore_unpatch.codemods.standing import PROCESSOR, processors
from mcore_unpatch.codemods.syntax import dotted
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.repository.paths import is_test


class Hold(NamedTuple):
    """One reason why a flow stays; of a `final` one no consent helps: the others go where their rules are named."""

    left: Left
    final: bool


class Analysis:
    """What a repository has of one downstream, and what holds it: whatever is to become of it."""

    def __init__(self, contract: Contract, repository: Repository) -> None:
        self.places = Places(contract, repository)

    @classmethod
    def of(cls, contract: Contract, repository: Repository) -> Analysis:
        """The same, made once for all who share a repository."""
        known: dict[str, Analysis] = repository.known.setdefault(cls, {})
        if contract.package not in known:
            known[contract.package] = cls(contract, repository)
        return known[contract.package]

    @cached_property
    def holds(self) -> dict[Flow, list[Hold]]:
        """The reasons of every flow; of each kind the first one speaks for all."""
        found: dict[Flow, dict[tuple[Refusal, bool], Hold]] = {}
        for flow, hold in (*self._of_definitions(), *self._of_uses(), *self._of_reaching()):
            found.setdefault(flow, {}).setdefault((hold.left.kind, hold.final), hold)
        first = Refusal.ON_HOOK  # then there is nothing to be done
        return {flow: sorted(holds.values(), key=lambda one: one.left.kind != first) for flow, holds in found.items()}

    def _of_definitions(self) -> Iterator[tuple[Flow, Hold]]:
        """What somebody changed, and what gives the model a processor of its own."""
        for path, definition in self.places.definitions.items():
            for name in definition.defined:
                flow = path, definition.shim.names[name]
                for unit in definition.changed(name):
                    yield flow, Hold(Left(Refusal.CHANGED, f"`{unit}`"), final=False)
            said = PROCESSOR.encode() in definition.source.data
            for rule in dict.fromkeys(definition.shim.names.values()) if said else ():
                if any(True for unit in definition.closure(rule) for _ in processors(unit.node)):
                    yield (path, rule), Hold(Left(Refusal.ON_HOOK), final=False)

    def _of_uses(self) -> Iterator[tuple[Flow, Hold]]:
        """Files that give it to the hook, that may not be edited, or that reach it through its module."""
        repository = self.places.repository
        for path, places in self.places.asked.items():
            source = repository.source(path)
            says = PROCESSOR.encode() in source.data
            given = {dotted(node) for value in processors(source.tree) for node in ast.walk(value)} if says else set()
            for place in places if not is_test(path) else ():
                if place.bound in given:
                    yield place.flow, Hold(Left(Refusal.ON_HOOK), final=False)
                elsewhere = place.where != path and (path not in repository.editable or path in self.places.definitions)
                if elsewhere or not isinstance(place.node, ast.ImportFrom):
                    yield place.flow, Hold(Left(Refusal.RELIED_ON, f"{path}:{place.line}"), final=True)

    def _of_reaching(self) -> Iterator[tuple[Flow, Hold]]:
        """Files that name the module itself."""
        for where, path, line in self.places.reaching():
            for rule in dict.fromkeys(self.places.definitions[where].shim.names.values()):
                yield (where, rule), Hold(Left(Refusal.RELIED_ON, f"{path}:{line}"), final=True)
