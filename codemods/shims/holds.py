"""Why patches stay. A patch, its undoing and what relies on it are one flow: all of it moves, or nothing of it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mcore_unpatch.codemods.fingerprints.compare import Difference
from mcore_unpatch.codemods.shims.definitions import Definition, Unit, reached
from mcore_unpatch.codemods.shims.exports import Exports, Need, ShimOrigin, ShimReference, Use
from mcore_unpatch.codemods.standing import PROCESSOR, processors
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.repository.paths import is_test

Flow = tuple[str, str]  # where, as an origin says it, and the rule
ANYWHERE = ""
OFFER = "`unpatch migrate --select MCU1,MCU7 --unsafe-fixes`"  # for what stands on the hook: the rules are named


@dataclass(frozen=True, slots=True)
class Blocker:
    """One reason; `final` if no consent lifts it, `stands` if there is nothing left to migrate.

    For what is `less` than upstream's, code with parts left out, consent is enough: nothing of its own is lost.
    """

    because: str
    final: bool = False
    stands: bool = False
    less: bool = False


def flow_of(origin: ShimOrigin) -> Flow:
    """The flow of a name."""
    return origin.where, origin.shim.names[origin.name]


class Blockers:
    """The reasons of every flow."""

    def __init__(
        self, exports: Exports, looks: Iterable[Use], changed: Mapping[tuple[str, str], list[Difference]]
    ) -> None:
        self.exports, self.editable = exports, exports.repository.editable
        self.of: defaultdict[Flow, list[Blocker]] = defaultdict(list)
        self._keeping: set[tuple[Flow, str]] = set()
        for (path, name), found in changed.items():
            flow = (path, exports.definitions[path].shim.names[name])
            own = dict.fromkeys(difference.name for difference in found if difference.own)
            for unit in own:
                self._add(flow, Blocker(f"`{unit}` was changed here"))
            if not own:
                self._add(flow, Blocker("parts of upstream's functions are left out here", less=True))
        for path, definition in exports.definitions.items():
            said = PROCESSOR.encode() in definition.source.data
            for rule in dict.fromkeys(definition.shim.names.values()) if said else ():
                if any(True for unit in closure(definition, rule) for _ in processors(unit.node)):
                    self._add((path, rule), _STANDS)
        for look in looks:
            self._given_to_the_hook(look)
            for need in look.needs:
                self._replaced(look, need)
            self._out_of_reach(look)
            self._through_the_module(look)

    def _add(self, flow: Flow, hold: Blocker) -> None:
        if hold not in self.of[flow]:
            self.of[flow].append(hold)

    def everywhere(self, rule: str, hold: Blocker) -> None:
        """A reason that holds wherever the patch is defined."""
        self._add((ANYWHERE, rule), hold)

    def reasons(self, flow: Flow) -> list[Blocker]:
        """Every reason of a flow."""
        return [*self.of.get(flow, ()), *self.of.get((ANYWHERE, flow[1]), ())]

    def _given_to_the_hook(self, look: Use) -> None:
        """Files that pass the downstream's own processor."""
        if PROCESSOR.encode() not in look.source.data:
            return
        given = {dotted(node) for value in processors(look.source.tree) for node in ast.walk(value)}
        for place in look.asked:
            if place.bound in given:
                self._add(flow_of(place.origin), _STANDS)

    def _replaced(self, look: Use, need: Need) -> None:
        """Names that a file replaces in the module: the shim reads its own. A test that may be edited is told of it."""
        path = look.source.path
        if not need.replaces or (is_test(path) and path in self.editable):
            return
        for flow in self._flows_with(need):
            if not any(hold.because.startswith(f"{path}:") for hold in self.of[flow]):
                hold = Blocker(f"{path}:{need.line} replaces `{need.name}` here", final=path not in self.editable)
                self._add(flow, hold)

    def _flows_with(self, need: Need) -> list[Flow]:
        definition = self.exports.definitions[need.where]
        rules = dict.fromkeys(definition.shim.names.values())
        return [(need.where, rule) for rule in rules if need.name in words(closure(definition, rule))]

    def _out_of_reach(self, look: Use) -> None:
        """A file that may not be edited keeps what it has, unless the file it has it from may be."""
        path = look.source.path
        if path in self.editable:
            return
        for place in look.asked:
            if place.origin.where not in self.editable and place.origin.where != path:
                because = self.exports.repository.not_editable(path)
                self.keeps(place, path, f"uses it too and {because}")

    def _through_the_module(self, look: Use) -> None:
        """An installed downstream's module that is imported whole goes on with the patch; a file here passes it on."""
        for place in look.asked:
            if place.origin.definition is None and not isinstance(place.node, ast.ImportFrom):
                why = f"reaches it through its module: import it from `{place.origin.shim.compat}` by name"
                self.keeps(place, look.source.path, why)

    def keeps(self, place: ShimReference, path: str, why: str) -> None:
        """A place that goes on with the patch as it is; the first of a file speaks for all."""
        flow = flow_of(place.origin)
        if (flow, path) not in self._keeping:
            self._keeping.add((flow, path))
            self._add(flow, Blocker(f"{path}:{place.node.lineno} {why}", final=True))


def closure(definition: Definition, rule: str) -> list[Unit]:
    """All that the functions of a rule lead to in their file."""
    own = [unit for name, unit in definition.defined.items() if definition.shim.names[name] == rule]
    return reached(own, definition.units)


def words(units: Iterable[Unit]) -> frozenset[str]:
    """The names that code binds and uses."""
    return frozenset().union(*(unit.binds | unit.uses for unit in units))


_STANDS = Blocker("it uses the hook already: the model is given an `output_processor`", stands=True)
