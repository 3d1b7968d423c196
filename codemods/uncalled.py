"""Files of patches that nothing in the repository imports or names: they go as a whole, where that is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mcore_unpatch.editing.edits import Edit, Options, Repository, as_name, splice
from mcore_unpatch.findings.finding import DOWNSTREAM, Finding
from mcore_unpatch.repository.paths import is_test

_SHIMS = re.compile(rb"mcore_unpatch\.compat[\w.]*(?: import \w+)?")
_LOADS = re.compile(rb"iter_modules|walk_packages|import_module|__import__|glob|listdir|scandir")


def unused_files(
    files: Repository, findings: Sequence[Finding], edits: Sequence[Edit], options: Options
) -> Iterator[Edit]:
    """An edit for each such file that has no other; names that other `edits` take away do not count."""
    edited = {edit.path for edit in edits}
    some = [one for one in findings if options.wants(one.rule) and one.shape not in DOWNSTREAM and not one.in_test]
    first = {one.path: one for one in sorted(some, key=lambda one: -one.line)}
    for path, finding in first.items() if options.applies("behaviour") and options.naming else ():
        if path in edited or path not in files.editable or is_test(path):
            continue
        folder, _, name = path.removesuffix(".py").rpartition("/")
        if not path.endswith(".py") or not files.exists(f"{folder}/__init__.py") or b"__main__" in files.data(path):
            continue  # a script is run by its path
        if name == "__init__" or any(_LOADS.search(files.data(init)) for init in _around(files, folder)):
            continue
        assert options.naming is not None
        others = (other for other in options.naming(name) if other != path)
        if any(as_name(name).search(_after(files, other, edits)) for other in others):
            continue
        title = f"deletes the file, for nothing in the repository imports or names `{name}`"
        yield Edit(
            path, finding.rule, "behaviour", 0, len(files.data(path)), b"", title, (), finding.line, deletes=True
        )


def _around(files: Repository, folder: str) -> Iterator[str]:
    """The files of the packages around a folder, which may load all that is in it."""
    while folder:
        if files.exists(init := f"{folder}/__init__.py"):
            yield init
        folder = folder.rpartition("/")[0]


def _after(files: Repository, path: str, edits: Sequence[Edit]) -> bytes:
    """What a file says once edits are made, without the names of shims, which are the same."""
    return _SHIMS.sub(b"", splice(files.data(path), [edit for edit in edits if edit.path == path]))
