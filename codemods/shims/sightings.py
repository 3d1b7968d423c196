"""Why a downstream's patches stay, and their uses as findings: `scan` shows what `migrate` edits, or why it does not.

A patch, its undoing and what relies on it are one flow: all of it moves, or nothing of it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mcore_unpatch.codemods.fingerprints.compare import Difference
from mcore_unpatch.codemods.quote import finding_at
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.shims.definitions import Definition, Unit, reached
from mcore_unpatch.codemods.shims.exports import Exports, Need, ShimOrigin, Use
from mcore_unpatch.codemods.standing import PROCESSOR, processors
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import first_line, lines_of
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import DEFINITION, USE, Finding
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.records import record
from mcore_unpatch.repository.paths import is_test

Flow = tuple[str, str]  # where, as an origin says it, and the rule
_THROUGH = "reaches it through its module: import it from `{}` by name"
OFFER = "`unpatch migrate --select MCU1,MCU7 --unsafe-fixes`"  # for what stands on the hook: the rules are named


@record
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
        self.of: defaultdict[Flow, dict[Blocker, None]] = defaultdict(dict)
        self._keeping: set[tuple[Flow, str]] = set()
        for (path, name), differences in changed.items():
            flow = (path, exports.definitions[path].shim.names[name])
            own = dict.fromkeys(difference.name for difference in differences if difference.own)
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
            self._going_on(look)

    def _add(self, flow: Flow, hold: Blocker) -> None:
        self.of[flow][hold] = None

    def reasons(self, flow: Flow) -> list[Blocker]:
        """Every reason of a flow."""
        return [*self.of.get(flow, ())]

    def _given_to_the_hook(self, look: Use) -> None:
        """Files that pass the downstream's own processor."""
        if PROCESSOR.encode() not in self.exports.repository.data(look.path):
            return
        given = {dotted(node) for value in processors(look.source.tree) for node in ast.walk(value)}
        for place in look.asked:
            if place.bound in given:
                self._add(flow_of(place.origin), _STANDS)

    def _replaced(self, look: Use, need: Need) -> None:
        """Names that a file replaces in the module, or reaches through it: it would go on with the patch as it is."""
        path, definition = look.path, self.exports.definitions[need.where]
        if is_test(path):
            return
        if not need.replaces:
            if need.name in definition.defined:
                flow = (need.where, definition.shim.names[need.name])
                self.keeps(flow, path, need.line, _THROUGH.format(definition.shim.compat))
            return
        rules = dict.fromkeys(definition.shim.names.values())
        for flow in ((need.where, rule) for rule in rules if need.name in words(closure(definition, rule))):
            if not any(hold.because.startswith(f"{path}:") for hold in self.of[flow]):
                hold = Blocker(f"{path}:{need.line} replaces `{need.name}` here", final=path not in self.editable)
                self._add(flow, hold)

    def _going_on(self, look: Use) -> None:
        """A file that may not be edited keeps what it has, and so does one that reaches it through its module."""
        path = look.path
        for place in look.asked if not is_test(path) else ():
            flow, line, is_other = flow_of(place.origin), place.node.lineno, place.origin.where != path
            if path not in self.editable and is_other:
                self.keeps(flow, path, line, "uses it too and is outside the given paths")
            elif path in self.exports.definitions and is_other:
                self.keeps(flow, path, line, "uses it too, and patches Megatron itself")
            if not isinstance(place.node, ast.ImportFrom):
                self.keeps(flow, path, line, _THROUGH.format(place.origin.shim.compat))

    def keeps(self, flow: Flow, path: str, line: int, why: str) -> None:
        """A place that goes on with the patch as it is; the first of a file speaks for all."""
        if (flow, path) not in self._keeping:
            self._keeping.add((flow, path))
            self._add(flow, Blocker(f"{path}:{line} {why}", final=True))


class Analysis:
    """What a repository has of one downstream, whatever is to become of it: a look at all files as if all stayed."""

    def __init__(self, contract: Contract, repository: Repository) -> None:
        self.exports = Exports(contract, repository)
        self.changed = {
            (path, name): differences
            for path, definition in self.exports.definitions.items()
            for name in definition.defined
            if (differences := definition.changed(name))
        }
        self.looks = {path: Use(path, self.exports) for path in self.exports.imports}
        self.holds = Blockers(self.exports, self.looks.values(), self.changed)

    @classmethod
    def of(cls, contract: Contract, repository: Repository) -> Analysis:
        """The same, made once for all who share a repository."""
        known: dict[str, Analysis] = repository.looks.setdefault(cls, {})
        if contract.package not in known:
            known[contract.package] = cls(contract, repository)
        return known[contract.package]


def closure(definition: Definition, rule: str) -> list[Unit]:
    """All that the functions of a rule lead to in their file."""
    own = [unit for name, unit in definition.defined.items() if definition.shim.names[name] == rule]
    return reached(own, definition.units)


def words(units: Iterable[Unit]) -> frozenset[str]:
    """The names that code binds and uses."""
    return frozenset().union(*(unit.binds | unit.uses for unit in units))


_STANDS = Blocker("it uses the hook already: the model is given an `output_processor`", stands=True)


def found(
    contract: Contract, project: Repository, known: Iterable[Finding]
) -> tuple[Exports, list[Finding | FileError]]:
    """What a repository has of a downstream, and all findings about it."""
    there = Analysis.of(contract, project)
    return there.exports, [*uses(there), *definitions(there.exports, known), *there.exports.errors]


def uses(there: Analysis) -> Iterator[Finding]:
    """A finding for each line on which a statement or an expression asks for names of one patch."""
    exports, holds = there.exports, there.holds
    for path, use in there.looks.items():
        if path in exports.definitions or is_test(path):  # what tests the patch goes on with that
            continue
        together: dict[tuple[int, str, str], tuple[ast.stmt | ast.expr, list[ShimOrigin]]] = {}
        for place in use.asked:
            where, rule = flow_of(place.origin)
            together.setdefault((place.node.lineno, rule, where), (place.node, []))[1].append(place.origin)
        for (_, rule, where), (node, origins) in together.items():
            names = sorted({origin.name for origin in origins})
            stands = any(reason.stands for reason in holds.reasons((where, rule)))
            instead = _instead(origins[0].shim, names, origins[0].definition)
            if stands:
                instead = f"nothing has to change on a Megatron with the hook; {OFFER} puts the shim in its place"
            message = f"uses {listed(names)}{_what(origins[0], rule, stands)}"
            said = (_target(exports, origins[0], names), message, instead)
            yield finding_at(use.source, node, rule, USE, rules()[rule].seam, said)


def definitions(exports: Exports, known: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for each patch that a file defines and the scanner sees none in that can move."""
    lines: dict[str, list[int]] = {}
    for finding in known:
        if finding.can_move:
            lines.setdefault(finding.path, []).append(finding.line)
    for path, definition in exports.definitions.items():
        for rule, names in by_rule(definition).items():
            spans = [lines_of(unit.node) for unit in closure(definition, rule)]
            if any(line in span for line in lines.get(path, ()) for span in spans):
                continue
            node = min((definition.defined[name].node for name in names), key=first_line)
            target = _target(exports, ShimOrigin(definition.shim, names[0], definition), names)
            instead = _instead(definition.shim, names, definition)
            said = (target, f"defines {listed(names)}: {rules()[rule].summary}", instead)
            yield finding_at(definition.source, node, rule, DEFINITION, rules()[rule].seam, said, end=node.lineno)


def _instead(shim: Shim, names: Sequence[str], definition: Definition | None) -> str:
    """Where names are to come from; before that, what a fork made of their functions has to be kept somewhere."""
    instead = f"import {'it' if len(names) == 1 else 'them'} from `{shim.compat}`"
    changed = (difference for name in names for difference in definition.changed(name)) if definition else ()
    own = {part.name: part.lines for part in changed if part.own}
    if not own or definition is None:
        return instead
    lines = f"{sum(own.values())} lines" if sum(own.values()) > 1 else "a line"
    differs = (
        f"{listed(list(own))} here {'differs' if len(own) == 1 else 'differ'} from {definition.contract.package}'s"
    )
    return f"{differs} in {lines}: port that first (`unpatch migrate --diff` shows it), then {instead}"


def by_rule(definition: Definition) -> dict[str, list[str]]:
    """The names that a file defines, by the rule of their patch."""
    grouped: dict[str, list[str]] = {}
    for name in definition.defined:
        grouped.setdefault(definition.shim.names[name], []).append(name)
    return grouped


def listed(names: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def _what(origin: ShimOrigin, rule: str, stands: bool) -> str:
    if origin.definition and origin.name in origin.definition.from_shim:
        return f" through {origin.where}, which only passes on what the shim has"
    if stands:
        return ": it passes `output_processor` already, and patches only models that do not take it"
    return f": {rules()[rule].summary}"


def _target(exports: Exports, origin: ShimOrigin, names: Sequence[str]) -> str:
    package = origin.definition.package if origin.definition else exports.contract.package
    module = f"{package}.{origin.shim.file.removesuffix('.py').replace('/', '.')}"
    return f"{module}.{names[0]}" if len(names) == 1 else module
