"""One downstream's patches moved to its shims: files that define them, files that use them, and what is left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mcore_unpatch.codemods.changes import Reason
from mcore_unpatch.codemods.edits import Options, Remark
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.shims.contract import Contract
from mcore_unpatch.codemods.shims.definitions import Changed, Definition
from mcore_unpatch.codemods.shims.exports import Exports, Origin
from mcore_unpatch.codemods.shims.uses import Use, turn
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.findings import Finding


class Migration:
    """The move of one downstream."""

    def __init__(self, contract: Contract, bench: Workbench, options: Options) -> None:
        self.contract, self.bench, self.options = contract, bench, options
        self.exports = Exports(contract, bench)
        self.changed = {
            (path, name): found
            for path, definition in self.exports.definitions.items()
            for name in definition.defined
            if (found := definition.changed(name))
        }
        self.uses: list[Use] = [self._turn(source) for source in self.exports.sources.values()]

    def _turn(self, source: Source) -> Use:
        if source.path in self.exports.definitions:  # its imports go with its code: what it asks for is all that counts
            return turn(source, self.exports, self.why, ImportEditor(source, self.bench))
        return turn(source, self.exports, self.why, self.bench.imports(source.path))

    def why(self, origin: Origin, name: str) -> Reason | None:
        """Why a name is turned to its shim; None if it is not to be."""
        rule = origin.shim.names[name]
        changed = self._changed(origin.definition, name)
        if not self.options.wants(rule) or (changed and not self.options.unsafe_fixes):
            return None
        return Reason(rule, "unsafe" if changed else "safe", "imports the shim")

    def _changed(self, definition: Definition | None, name: str) -> list[Changed]:
        return self.changed.get((definition.source.path, name), []) if definition else []

    def outcome(self, findings: Sequence[Finding]) -> Outcome:
        """Edits of every file but those of imports, remarks on what differs or stays, and the findings that go."""
        found = Outcome()
        for use in self.uses:
            if use.source.path not in self.exports.definitions:
                found.edits += use.edits
        for path, definition in self.exports.definitions.items():
            if path in self.exports.sources:
                self._rewrite(definition, findings, found)
        found.remarks += [*self._differing(), *self._left()]
        return found

    def _rewrite(self, definition: Definition, findings: Sequence[Finding], found: Outcome) -> None:
        path = definition.source.path
        names = [name for name in definition.defined if self.why(Origin(definition.shim, name, definition), name)]
        needed = frozenset(name for use in self.uses for where, name in use.needs if where == path)
        if not names:
            return
        exported = names if self.contract.keeps_names else [name for name in names if name in needed]
        reason = Reason(
            min(definition.shim.names.values()),
            "unsafe" if any(self._changed(definition, name) for name in names) else "safe",
            "has its names from the shim" if exported else "loses the patch",
        )
        rewrite = definition.without(names, exported, needed, reason, self.bench.imports(path))
        found.edits += rewrite.edits
        found.removes += [
            finding
            for finding in findings
            if finding.path == path and any(first <= finding.line <= last for first, last in rewrite.gone)
        ]

    def _differing(self) -> Iterator[Remark]:
        told: set[tuple[str, str]] = set()
        for (path, name), found in self.changed.items():
            rule = self.exports.definitions[path].shim.names[name]
            for changed in found if self.options.wants(rule) else ():
                difference = changed.difference
                if (changed.path, difference.name) in told:
                    continue
                told.add((changed.path, difference.name))
                text = f"`{difference.name}` is not the one of any {self.contract.package} release"
                if difference.release:
                    text += f"; nearest is {difference.release}, {difference.lines} lines differ"
                yield Remark(changed.path, difference.line, rule, "differs", text, difference.diff)

    def _left(self) -> Iterator[Remark]:
        if self.options.unsafe_fixes:
            return
        for (path, name), found in self.changed.items():
            definition = self.exports.definitions[path]
            rule = definition.shim.names[name]
            if self.options.wants(rule):
                because = ", ".join(f"`{changed.difference.name}`" for changed in found)
                text = f"`{name}` is left: {because} was changed here; `--unsafe-fixes` replaces it all the same"
                yield Remark(path, definition.defined[name].node.lineno, rule, "left", text)
        for use in self.uses:
            for line, name in use.left:
                rule = next(shim.names[name] for shim in self.contract.shims if name in shim.names)
                if self.options.wants(rule):
                    text = f"`{name}` is still imported from the file that was changed"
                    yield Remark(use.source.path, line, rule, "left", text)
