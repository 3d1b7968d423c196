"""One downstream's patches moved to its shims: files that define them, files that use them, and what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.edits import Applicability, Options, Remark, Repository
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.shims import internals
from mcore_unpatch.codemods.shims.contract import Contract
from mcore_unpatch.codemods.shims.definitions import Definition
from mcore_unpatch.codemods.shims.exports import Exports, Origin
from mcore_unpatch.codemods.shims.holds import Flow, Holds, flow_of
from mcore_unpatch.codemods.shims.uses import Use, turn
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import Finding

_LISTED = 3  # reasons in one sentence; with more nobody reads them


class Analysis:
    """What a repository has of one downstream, whatever is to become of it: a look at all files as if all stayed."""

    def __init__(self, contract: Contract, repository: Repository) -> None:
        self.contract = contract
        self.exports = Exports(contract, repository)
        self.changed = {
            (path, name): found
            for path, definition in self.exports.definitions.items()
            for name in definition.defined
            if (found := definition.changed(name))
        }
        self.looks = {
            path: turn(source, self.exports, lambda _: None, ImportEditor(source, repository))
            for path, source in self.exports.sources.items()
        }
        self.holds = Holds(self.exports, self.looks.values(), self.changed)


class Migration:
    """The move of one downstream: what becomes of the files that may be edited."""

    def __init__(self, known: Analysis, bench: Workbench, options: Options) -> None:
        self.contract, self.bench, self.options = known.contract, bench, options
        self.exports, self.changed, self.looks, self.holds = known.exports, known.changed, known.looks, known.holds
        self.uses: list[Use] = [self._turn(source) for source in self.exports.sources.values()]

    def _turn(self, source: Source) -> Use:
        if source.path not in self.bench.editable:
            return self.looks[source.path]
        if source.path in self.exports.definitions:  # its imports go with its code: what it asks for is all that counts
            return turn(source, self.exports, self.why, ImportEditor(source, self.bench))
        return turn(source, self.exports, self.why, self.bench.imports(source.path))

    def why(self, origin: Origin) -> Reason | None:
        """Why a name is turned to its shim; None if it is not to be."""
        level = self.level(flow_of(origin))
        return Reason(origin.shim.names[origin.name], level, "imports the shim") if level else None

    def level(self, *flows: Flow) -> Applicability | None:
        """How flows that go together are edited; None if they stay."""
        wanted = all(self.options.wants(rule) for _, rule in flows)
        return self.holds.level(flows, self.options.unsafe_fixes) if wanted else None

    def outcome(self, findings: Sequence[Finding]) -> Outcome:
        """Edits of every file but those of imports, remarks on what differs or stays, and the findings that go."""
        found = Outcome()
        for use in self.uses:
            if use.source.path not in self.exports.definitions:
                found.edits += use.edits
        for path, definition in self.exports.definitions.items():
            if path in self.bench.editable:
                self._rewrite(definition, findings, found)
        found.remarks += [*self._differing(), *self._left(), *self._replaced()]
        return found

    def _rewrite(self, definition: Definition, findings: Sequence[Finding], found: Outcome) -> None:
        path = definition.source.path
        rules = definition.shim.names
        names = {name: level for name in definition.defined if (level := self.level((path, rules[name])))}
        needed = frozenset(need.name for use in self.uses for need in use.needs if need.where == path)
        if not names:
            return
        exported = names if self.contract.keeps_names else [name for name in names if name in needed]
        reason = Reason(
            min(rules.values()),
            "unsafe" if "unsafe" in names.values() else "safe",
            "has its names from the shim" if exported else "loses the patch",
        )
        rewrite = definition.without(names, exported, needed, reason, self.bench.imports(path))
        found.edits += rewrite.edits
        found.removes += [
            finding
            for finding in findings
            if finding.path == path and any(first <= finding.line <= last for first, last in rewrite.gone)
        ]
        moved = list(dict.fromkeys(rules[name] for name in names))
        found.remarks += internals.told(definition, moved, self.looks.values(), findings)

    def _differing(self) -> Iterator[Remark]:
        told: set[tuple[str, str]] = set()
        for (path, name), found in self.changed.items():
            rule = self.exports.definitions[path].shim.names[name]
            for changed in found if self.options.wants(rule) and not self._stands((path, rule)) else ():
                difference = changed.difference
                if (changed.path, difference.name) in told:
                    continue
                told.add((changed.path, difference.name))
                text = f"`{difference.name}` is not the one of any {self.contract.package} release"
                if difference.release:
                    text += f"; nearest is {difference.release}, {difference.lines} lines differ"
                yield Remark(changed.path, difference.line, rule, "differs", text, difference.diff)

    def _replaced(self) -> Iterator[Remark]:
        """Which numbers change where a changed function is replaced all the same."""
        for (path, name), found in self.changed.items() if self.options.unsafe_fixes else ():
            definition = self.exports.definitions[path]
            if self.options.wants(rule := definition.shim.names[name]):
                because = " and ".join(f"`{one}`" for one in dict.fromkeys(one.difference.name for one in found))
                text = (
                    f"`{name}` now computes what {self.contract.package} does: the changes made to {because} are lost"
                )
                yield Remark(path, definition.defined[name].node.lineno, rule, "numerics", text)

    def _left(self) -> Iterator[Remark]:
        """Every flow that stays, where it is defined and where it is used."""
        for path, definition in self.exports.definitions.items():
            flows: dict[str, list[str]] = {}
            for name in definition.defined:
                flows.setdefault(definition.shim.names[name], []).append(name)
            for rule, names in flows.items():
                line = min(definition.defined[name].node.lineno for name in names)
                if self._stands((path, rule)):
                    yield Remark(path, line, rule, "left", _stands(definition.shim.gain))
                elif because := self._why_left((path, rule)):
                    yield Remark(path, line, rule, "left", f"{_listed(names)} left: {because}")
        for use in self.uses:
            for _, line, origin in use.asked:
                flow = flow_of(origin)
                because = self._why_left(flow)
                if self._stands(flow) and origin.definition is None:
                    yield Remark(use.source.path, line, flow[1], "left", _stands(origin.shim.gain))
                elif because and not self._stands(flow):
                    if origin.where in self.bench.editable:
                        because = f"it still comes from {origin.where}"
                    yield Remark(use.source.path, line, flow[1], "left", f"`{origin.name}` is left: {because}")

    def _stands(self, flow: Flow) -> bool:
        """Whether a flow stays because it stands on the hook, whatever else may be said of it."""
        return bool(self._why_left(flow)) and any(reason.stands for reason in self.holds.reasons(flow))

    def _why_left(self, flow: Flow) -> str:
        """Why a flow stays; empty if it does not, or is not wanted to go."""
        if not self.options.wants(flow[1]) or self.level(flow):
            return ""
        reasons = self.holds.reasons(flow)
        listed = list(dict.fromkeys(reason.because for reason in reasons))
        if len(listed) > _LISTED:
            listed[_LISTED:] = [f"and {len(listed) - _LISTED} more places"]
        text = "; ".join(listed)
        if any(reason.final for reason in reasons):
            return text
        return f"{text}; `--unsafe-fixes` replaces it all the same"


def _stands(gain: str) -> str:
    better = f": {gain}" if gain else ""
    return (
        f"this passes `output_processor` already and is left alone; `--unsafe-fixes` puts the shim in its place{better}"
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) + (" is" if len(names) == 1 else " are")
