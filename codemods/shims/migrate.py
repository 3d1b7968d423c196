"""One downstream's patches moved to its shims: files that define them, files that use them, and what is left."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from mcore_unpatch.codemods.changes import Change, settle
from mcore_unpatch.codemods.edits import Edit, Options, Remark, Repository
from mcore_unpatch.codemods.outcome import Outcome
from mcore_unpatch.codemods.shims.contract import Contract
from mcore_unpatch.codemods.shims.definitions import Changed, Definition
from mcore_unpatch.codemods.shims.exports import Exports, Origin
from mcore_unpatch.codemods.shims.uses import Use, turn
from mcore_unpatch.codemods.source import Source
from mcore_unpatch.findings import Finding


class Migration:
    """The move of one downstream."""

    def __init__(self, contract: Contract, repository: Repository, options: Options) -> None:
        self.contract, self.repository, self.options = contract, repository, options
        self.exports = Exports(contract, repository)
        self.changed = {
            (path, name): found
            for path, definition in self.exports.definitions.items()
            for name in definition.defined
            if (found := definition.changed(name))
        }
        self.uses: list[Use] = [self._turn(source) for source in self.exports.sources.values()]

    def _turn(self, source: Source) -> Use:
        return turn(source, self.exports, self.may)

    def may(self, origin: Origin, name: str) -> bool:
        """Whether a name is to be turned to its shim."""
        if not self.options.wants(origin.shim.names[name]):
            return False
        return self.options.unsafe_fixes or not self._changed(origin.definition, name)

    def _changed(self, definition: Definition | None, name: str) -> list[Changed]:
        return self.changed.get((definition.source.path, name), []) if definition else []

    def outcome(self, findings: Sequence[Finding]) -> Outcome:
        """Edits of every file, remarks on what differs or stays, and the findings that go."""
        found = Outcome()
        for use in self.uses:
            if use.source.path not in self.exports.definitions:
                unsafe = any(self._changed(origin.definition, origin.name) for origin in use.origins.values())
                found.edits += self._edits(use.source, use.changes, unsafe, "imports the shim")
        for path, definition in self.exports.definitions.items():
            if path in self.exports.sources:
                self._rewrite(definition, findings, found)
        found.remarks += [*self._differing(), *self._left()]
        return found

    def _rewrite(self, definition: Definition, findings: Sequence[Finding], found: Outcome) -> None:
        path = definition.source.path
        names = [name for name in definition.defined if self.may(Origin(definition.shim, name, definition), name)]
        needed = frozenset(name for use in self.uses for where, name in use.needs if where == path)
        if not names:
            return
        exported = names if self.contract.keeps_names else [name for name in names if name in needed]
        rewrite = definition.without(names, exported, needed)
        unsafe = any(self._changed(definition, name) for name in names)
        title = "has its names from the shim" if exported else "loses the patch"
        found.edits += self._edits(definition.source, rewrite.changes, unsafe, title)
        found.removes += [
            finding
            for finding in findings
            if finding.path == path and any(first <= finding.line <= last for first, last in rewrite.gone)
        ]

    def _edits(self, source: Source, changes: Iterable[Change], unsafe: bool, title: str) -> Iterator[Edit]:
        for change in settle(changes, source.data):
            yield Edit(
                source.path,
                self._rule(source, change),
                "unsafe" if unsafe else "safe",
                change.span.start,
                change.span.end,
                source.encode(change.text),
                f"{source.path} {title}",
            )

    def _rule(self, source: Source, change: Change) -> str:
        """The rule of the names that a change is about."""
        names = {name: rule for shim in self.contract.shims for name, rule in shim.names.items()}
        about = {getattr(change.node, "name", "")}
        if isinstance(change.node, ast.Import | ast.ImportFrom):
            about |= {alias.name for alias in change.node.names}
        shim = self.contract.shim_at(source.path) or self.contract.shims[0]
        return min([names[name] for name in about if name in names] or shim.names.values())

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
