"""What codemods have in common while a plan is made: the files, an editor for the imports of each, what they found."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Asked
from mcore_unpatch.codemods.imports.editor import ImportEditor
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.refusals import Left
from mcore_unpatch.findings.finding import Finding


@dataclass
class Workbench:
    """What comes of all codemods: changes, the findings that are gone once these are made, and why others are left."""

    repository: Repository
    asked: list[Asked] = field(default_factory=list)
    recipes: list[str] = field(default_factory=list)
    removes: list[Finding] = field(default_factory=list)
    left: dict[Finding, Left] = field(default_factory=dict)
    editors: dict[str, ImportEditor] = field(default_factory=dict)

    def imports(self, path: str) -> ImportEditor:
        """The editor of a file's imports: whoever needs one asks it, so that all of them land sorted."""
        if path not in self.editors:
            self.editors[path] = ImportEditor(self.repository.source(path))
        return self.editors[path]

    def changes(self) -> Iterator[Asked]:
        """All changes, those of imports included."""
        for editor in self.editors.values():
            yield from editor.changes()
        yield from self.asked
