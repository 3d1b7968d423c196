"""Where the imported names of a module come from, as hashes that do not depend on what a fork calls its package."""

from __future__ import annotations

import ast
from hashlib import blake2b

from mcore_unpatch.codemods.fingerprints.normalise import without_package
from mcore_unpatch.codemods.syntax import bound_by_import


def origins(tree: ast.Module, package: str, file: str) -> dict[str, str]:
    """Imported name -> hash of its origin, for the imports at the top of a module.

    `package` is the name of the top package, `file` the module's path below it. `package.a.b` and its relative form
    are the same origin, whatever the package is called.
    """
    found: dict[str, str] = {}
    waiting: list[ast.AST] = [*tree.body]
    for node in waiting:
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler):
            waiting += ast.iter_child_nodes(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                origin = without_package(alias.name, package)
                if isinstance(node, ast.ImportFrom):
                    origin = f"{_absolute(node, package, file)}:{alias.name}"
                found[bound_by_import(alias, node)] = _hash(origin)
    return found


def _absolute(node: ast.ImportFrom, package: str, file: str) -> str:
    module = node.module or ""
    if not node.level:
        return without_package(module, package)
    folders = file.split("/")[: -node.level]
    return "." + ".".join([*folders, module] if module else folders)


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()
