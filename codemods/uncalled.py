"""Files of patches that nothing in the repository imports or names: they go as a whole, where that is asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from mcore_unpatch.editing.edits import Edit, Options, Repository, splice
from mcore_unpatch.findings.finding import DOWNSTREAM, Finding
from mcore_unpatch.repository.paths import is_test

_SHIMS = re.compile(rb"mcore_unpatch\.compat[\w.]*(?: import \w+)?")
_LOADS = re.compile(rb"iter_modules|walk_packages|import_module|__import__|glob|listdir|scandir")


def unused_files(
    files: Repository, findings: Sequence[Finding], edits: Sequence[Edit], options: Options
) -> Iterator[Edit]:
    """An edit for each such file that has no other; names that other `edits` take away do not count."""
    if not options.applies("behaviour") or options.naming is None:
        return
    edited = {edit.path for edit in edits}
    some = [one for one in findings if options.wants(one.rule) and one.shape not in DOWNSTREAM and not one.in_test]
    for path, finding in {one.path: one for one in sorted(some, key=lambda one: -one.line)}.items():
        folder, _, name = path.removesuffix(".py").rpartition("/")
        if path in edited or path not in files.editable or is_test(path) or not path.endswith(".py"):
            continue
        above = [folder.rsplit("/", number)[0] for number in range(folder.count("/") + 1)]
        inits = [init for one in above if files.exists(init := f"{one}/__init__.py")]
        # A script is run by its path; a package may load all that is in it.
        if f"{folder}/__init__.py" not in inits or name == "__init__" or b"__main__" in files.data(path):
            continue
        if any(_LOADS.search(files.data(init)) for init in inits):
            continue
        word = re.compile(rb"\b%b\b" % re.escape(name.encode()))
        if not any(word.search(_after(files, other, edits)) for other in options.naming(name) if other != path):
            title = f"deletes the file, for nothing in the repository imports or names `{name}`"
            whole = (0, len(files.data(path)), b"", title, (), finding.line)
            yield Edit(path, finding.rule, "behaviour", *whole, deletes=True)


def _after(files: Repository, path: str, edits: Sequence[Edit]) -> bytes:
    """What a file says once edits are made, without the names of shims, which are the same."""
    return _SHIMS.sub(b"", splice(files.data(path), [edit for edit in edits if edit.path == path]))
