"""What codemods have in common while a plan is made: the files, an editor for the imports of each, what they found."""

from __future__ import annotations

from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Asked
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.editing.edits import Remark, Repository
from mcore_unpatch.findings.finding import Finding


class Workbench(Repository):
    """What codemods have in common. Whoever needs an import asks the file's editor, so that all of them land sorted."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository.paths, repository.exists, repository.data, repository.editable, repository.parsed)
        self.sources, self.last, self.looks = repository.sources, repository.last, repository.looks
        self._editors: dict[str, ImportEditor] = {}

    def close(self) -> None:
        """Let go of the editors; files are shared."""
        self._editors.clear()

    def imports(self, path: str) -> ImportEditor:
        """The editor of a file's imports."""
        if path not in self._editors:
            self._editors[path] = ImportEditor(self.source(path), self)
        return self._editors[path]

    def import_changes(self) -> list[Asked]:
        """What the editors were asked for so far."""
        return [change for editor in self._editors.values() for change in editor.changes()]


@dataclass
class Contribution:
    """What one codemod has for the plan: changes, remarks, and the findings that are gone once the changes are made."""

    asked: list[Asked] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    recipes: list[str] = field(default_factory=list)
    removes: list[Finding] = field(default_factory=list)
    held: dict[Finding, str] = field(default_factory=dict)  # why they are left, where a codemod knows a way

    def add(self, other: Contribution) -> None:
        """What another codemod found, behind what is here."""
        self.asked += other.asked
        self.remarks += other.remarks
        self.recipes += other.recipes
        self.removes += other.removes
        self.held |= other.held
