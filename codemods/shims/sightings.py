"""The uses of a downstream's patch as findings: `scan` shows what `migrate` edits, or leaves with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mcore_unpatch.codemods.quote import finding_at
from mcore_unpatch.codemods.shims.contract import Contract, Shim
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.shims.exports import Exports, ShimOrigin, Use, turn
from mcore_unpatch.codemods.shims.holds import OFFER, Blockers, closure, flow_of
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import first_line, last_line
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import DEFINITION, USE, Finding
from mcore_unpatch.findings.rules import rules
from mcore_unpatch.repository.paths import is_test


def found(
    contract: Contract, project: Repository, known: Iterable[Finding]
) -> tuple[Exports, list[Finding | FileError]]:
    """What a repository has of a downstream, and all findings about it."""
    exports = Exports(contract, project)
    return exports, [*uses(exports, look(exports)), *definitions(exports, known), *exports.errors]


def look(exports: Exports) -> dict[str, Use]:
    """What every file asks for, as if all of it stayed."""
    return {path: turn(source, exports, lambda _: None) for path, source in exports.sources.items()}


def uses(exports: Exports, looks: Mapping[str, Use]) -> Iterator[Finding]:
    """A finding for each line on which a statement or an expression asks for names of one patch."""
    holds = Blockers(exports, looks.values(), {})
    for path, use in looks.items():
        if path in exports.definitions:  # its imports go with its code
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
            elif origins[0].definition is not None and is_test(path):  # of the function itself, by its own insides
                instead = f"adapt or delete this test with the function, which `{origins[0].shim.compat}` replaces"
            message = f"uses {listed(names)}{_what(exports, origins[0], rule, stands)}"
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
            spans = [(first_line(unit.node), last_line(unit.node)) for unit in closure(definition, rule)]
            if any(first <= line <= last for line in lines.get(path, ()) for first, last in spans):
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
    own = {one.name: one.lines for one in changed if one.own}
    if not own or definition is None:
        return instead
    lines = f"{sum(own.values())} lines" if sum(own.values()) > 1 else "a line"
    differs = (
        f"{listed(list(own))} here {'differs' if len(own) == 1 else 'differ'} from {definition.contract.package}'s"
    )
    return f"{differs} in {lines}: port that first (`unpatch migrate --diff` shows it), then {instead}"


def by_rule(definition: Definition) -> dict[str, list[str]]:
    """The names that a file defines, by the rule of their patch."""
    found: dict[str, list[str]] = {}
    for name in definition.defined:
        found.setdefault(definition.shim.names[name], []).append(name)
    return found


def listed(names: Sequence[str]) -> str:
    """`a`, `b` and `c`."""
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, (", ".join(quoted[:-1]), quoted[-1])))


def _what(exports: Exports, origin: ShimOrigin, rule: str, stands: bool) -> str:
    if origin.definition and origin.name in origin.definition.from_shim:
        return f" through {origin.where}, which only passes on what the shim has"
    if stands:
        return ": it passes `output_processor` already, and patches only models that do not take it"
    return f": {rules()[rule].summary}"


def _target(exports: Exports, origin: ShimOrigin, names: Sequence[str]) -> str:
    package = origin.definition.package if origin.definition else exports.contract.package
    module = f"{package}.{origin.shim.file.removesuffix('.py').replace('/', '.')}"
    return f"{module}.{names[0]}" if len(names) == 1 else module
