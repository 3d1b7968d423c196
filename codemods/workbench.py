"""The repository while a plan for it is made: the imports of a file have one editor for all."""

from __future__ import annotations

from mcore_unpatch.codemods.changes import Asked
from mcore_unpatch.codemods.edits import Repository
from mcore_unpatch.codemods.imports.editor import ImportEditor


class Workbench(Repository):
    """What codemods have in common. Whoever needs an import asks the file's editor, so that all of them land sorted."""

    def __init__(self, repository: Repository) -> None:
        super().__init__(repository.paths, repository.exists, repository.data, repository.editable)
        self.sources = repository.sources
        self._editors: dict[str, ImportEditor] = {}

    def imports(self, path: str) -> ImportEditor:
        """The editor of a file's imports."""
        if path not in self._editors:
            self._editors[path] = ImportEditor(self.source(path), self)
        return self._editors[path]

    def import_changes(self) -> list[Asked]:
        """What the editors were asked for so far."""
        return [change for editor in self._editors.values() for change in editor.changes()]
