"""The upstream functions of a downstream, as hashes: whether a function is one of them.

Hashes leave out what a reader may change freely: comments, formatting, docstrings and annotations do not count, nor
what a fork calls its package; every other name, every constant and default does.
"""

from __future__ import annotations

import ast
import json
from functools import cache
from hashlib import blake2b
from importlib.resources import files

from mcore_unpatch.codemods.syntax import bound_by_import
from mcore_unpatch.library.digests import dump, without_package


class Fingerprints:
    """The upstream functions of one downstream project, by file and name."""

    def __init__(self, project: str) -> None:
        data = json.loads(files(__package__).joinpath(f"{project}.json").read_text(encoding="utf-8"))
        self._known = {
            (file, name): {one["hash"] for one in versions}
            for file, names in data["files"].items()
            for name, versions in names.items()
        }

    def knows(self, file: str, name: str) -> bool:
        """Whether any release has such a name in that file."""
        return (file, name) in self._known

    def has(self, file: str, name: str, digest: str) -> bool:
        """Whether a release has the function, or the import, of this hash; not if somebody changed it."""
        return digest in self._known.get((file, name), ())


@cache
def load(project: str) -> Fingerprints:
    """The fingerprints of a project, read once."""
    return Fingerprints(project)


def fingerprint(node: ast.stmt, package: str) -> str:
    """The hash of a whole statement; for a definition, its decorators included."""
    return _hash(dump(node, package), 12)


def origins(tree: ast.Module, package: str, file: str) -> dict[str, str]:
    """Imported name -> hash of its origin, for the imports at the top of a module.

    `package` is the name of the top package, `file` the module's path below it. `package.a.b` and its relative form
    are the same origin, whatever the package is called.
    """
    by_name: dict[str, str] = {}
    waiting: list[ast.AST] = [*tree.body]
    for node in waiting:
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                origin = without_package(alias.name, package)
                if isinstance(node, ast.ImportFrom):
                    origin = f"{_home_of(node, package, file)}:{alias.name}"
                by_name[bound_by_import(alias, node)] = _hash(origin, 6)
    return by_name


def _home_of(node: ast.ImportFrom, package: str, file: str) -> str:
    """The module that an import is from; one of the package itself begins with a dot."""
    module = node.module or ""
    folders = file.split("/")
    if not node.level or node.level > len(folders):  # a package inside another may name itself from above
        return without_package(module, package)
    folders = folders[: -node.level]
    return "." + ".".join([*folders, module] if module else folders)


def _hash(text: str, size: int) -> str:
    return blake2b(text.encode(), digest_size=size).hexdigest()
