"""The uses of a downstream's patches as findings, and its definitions where the scanner sees no patch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from mcore_unpatch.codemods.quote import finding_at
from mcore_unpatch.codemods.shims.contract import Contract
from mcore_unpatch.codemods.shims.holds import Analysis
from mcore_unpatch.codemods.shims.places import Place
from mcore_unpatch.codemods.shims.upstream import Definition
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.refusals import Refusal
from mcore_unpatch.editing.source import first_line, lines_of
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import DEFINITION, USE, Finding
from mcore_unpatch.findings.rules import rules

_OFFER = "nothing has to change on a Megatron with the hook: `unpatch migrate --select {} --unsafe-fixes` moves it"


def found(contract: Contract, repository: Repository, known: Iterable[Finding]) -> Iterator[Finding | FileError]:
    """All findings about what a repository has of a downstream."""
    there = Analysis.of(contract, repository)
    yield from _uses(there)
    yield from _definitions(there, known)
    yield from there.places.errors


def _uses(there: Analysis) -> Iterator[Finding]:
    """A finding for each line on which a statement or an expression asks for names of one patch."""
    for path, places in there.places.uses().items():
        together: dict[tuple[int, tuple[str, str]], list[Place]] = {}
        for place in places:
            together.setdefault((place.line, place.flow), []).append(place)
        for (_, (where, rule)), some in together.items():
            names = sorted({place.name for place in some})
            definition, first = there.places.definitions.get(where), some[0]
            stands = any(hold.left.kind == Refusal.ON_HOOK for hold in there.holds.get((where, rule), ()))
            instead = _OFFER.format(rule) if stands else _instead(first.shim.compat, names, definition)
            what = "it passes `output_processor` already" if stands else rules()[rule].summary
            said = (_target(there, first, names, definition), f"uses {listed(names)}: {what}", instead)
            source = there.places.repository.source(path)
            yield finding_at(source, first.node, rule, USE, rules()[rule].seam, said)


def _definitions(there: Analysis, known: Iterable[Finding]) -> Iterator[Finding]:
    """A finding for each patch that a file defines and the scanner sees none in that can move."""
    lines: dict[str, list[int]] = {}
    for finding in known:
        if finding.can_move:
            lines.setdefault(finding.path, []).append(finding.line)
    for path, definition in there.places.definitions.items():
        grouped: dict[str, list[str]] = {}
        for name in definition.defined:
            grouped.setdefault(definition.shim.names[name], []).append(name)
        for rule, names in grouped.items():
            spans = [lines_of(unit.node) for unit in definition.closure(rule)]
            if any(line in span for line in lines.get(path, ()) for span in spans):
                continue
            node = min((definition.defined[name].node for name in names), key=first_line)
            place = Place(path, ast.Name(""), "", names[0], definition.shim, path)
            instead = _instead(definition.shim.compat, names, definition)
            message = f"defines {listed(names)}: {rules()[rule].summary}"
            said = (_target(there, place, names, definition), message, instead)
            yield finding_at(definition.source, node, rule, DEFINITION, rules()[rule].seam, said, end=node.lineno)


def _instead(compat: str, names: Sequence[str], definition: Definition | None) -> str:
    """Where names are to come from; before that, what a fork made of their functions has to be kept somewhere."""
    instead = f"import {'it' if len(names) == 1 else 'them'} from `{compat}`"
    defined = [name for name in names if definition and name in definition.defined]
    own = {part for name in defined if definition for part in definition.changed(name)}
    return f"port what was changed in {listed(sorted(own))} first, then {instead}" if own else instead


def _target(there: Analysis, place: Place, names: Sequence[str], definition: Definition | None) -> str:
    package = definition.package if definition else there.places.contract.package
    module = f"{package}.{place.shim.file.removesuffix('.py').replace('/', '.')}"
    return f"{module}.{names[0]}" if len(names) == 1 else module


def listed(names: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))
