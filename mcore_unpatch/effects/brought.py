"""What a repository brings into the library itself: what it sets there, and what its diffs add."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mcore_unpatch.code.index import is_test
from mcore_unpatch.code.names import Names
from mcore_unpatch.patches.records import Patch, PatchFile


class Brought:
    """Answers for one repository: for its patches, and for its diffs of the library's source."""

    def __init__(self, names: Names, patches: Iterable[Patch], files: Iterable[PatchFile] = ()) -> None:
        self._index, self._supplied = names.index, {(patch.path, patch.target) for patch in patches}
        self._added = [pair for file in files for pair in file.added]
        self._set: dict[str, bool] = {}

    def puts(self, name: str, path: str) -> bool:
        """Whether a name is there because the same file puts it there, or a diff."""
        return (path, name) in self._supplied or self._is_in_diff(name)

    def adds(self, name: str) -> bool:
        """Whether any file, or a diff, puts a name there."""
        return any(target == name for _, target in self._supplied) or self._is_in_diff(name)

    def _is_in_diff(self, name: str) -> bool:
        owner, _, leaf = name.rpartition(".")
        return self.takes([owner], [leaf])

    def takes(self, homes: Iterable[str], words: Iterable[str]) -> bool:
        """Whether a diff adds each of some words to a file in which one of some definitions stands."""
        every = [
            word
            for home in homes
            for module, more in self._added
            if f"{home}.".startswith(f"{module}.")
            for word in more
        ]
        return bool(every) and set(words).issubset(every)

    def sets(self, leaf: str) -> bool:
        """Whether a file outside tests sets an attribute of a name, on whatever object."""
        if leaf not in self._set:
            spelled = re.compile(rb"\.%b\s*(:[^=\n]+)?=[^=]|\bsetattr\([^)]*['\"]%b['\"]" % ((leaf.encode(),) * 2))
            saying = (path for path in self._index.saying(leaf) if not is_test(path))
            self._set[leaf] = any(spelled.search(self._index.sources[path]) for path in saying)
        return self._set[leaf]
