"""What a maintainer asks of a pull request that a tool made: read off the files before and after."""

import ast
import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping

Files = Mapping[str, bytes]


def faults(before: Files, after: Files) -> list[str]:
    """Why edited files cannot be merged: syntax, names, emptied functions, imports of nothing."""
    python = [path for path in after if path.endswith(".py")]
    broken = [f"{path} does not compile" for path in python if not _compiles(after[path])]
    if broken:
        return broken
    emptied = [f"{path}: {name} is empty" for path in python for name in _emptied(before[path], after[path])]
    return [*_new_pyflakes(before, after, python), *emptied, *(one for path in python for one in _missing(after[path]))]


def _compiles(data: bytes) -> bool:
    try:
        compile(data, "m.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


def _new_pyflakes(before: Files, after: Files, paths: list[str]) -> list[str]:
    """What ruff's F rules say of the new files and did not say of the old ones."""
    old, new = (Counter(one for path in paths for one in _pyflakes(path, files[path])) for files in (before, after))
    return list((new - old).elements())


def _pyflakes(path: str, data: bytes) -> list[str]:
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "--output-format", "json"]
    done = subprocess.run([*ruff, "--stdin-filename", path, "-"], input=data, capture_output=True, check=False)
    return [f"{path}: {one['code']} {one['message']}" for one in json.loads(done.stdout or b"[]")]


def _emptied(before: bytes, after: bytes) -> list[str]:
    old, new = ({one.name: one for one in _functions(data)} for data in (before, after))
    return [name for name, one in new.items() if _is_empty(one) and name in old and not _is_empty(old[name])]


def _functions(data: bytes) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(data)) if isinstance(node, ast.FunctionDef)]


def _is_empty(function: ast.FunctionDef) -> bool:
    return all(isinstance(one, ast.Pass) or isinstance(getattr(one, "value", 0), ast.Constant) for one in function.body)


def _missing(data: bytes) -> list[str]:
    """Imports of ours that name something which is not there."""
    ours = [
        node
        for node in ast.walk(ast.parse(data))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mcore_unpatch.compat")
    ]
    modules = {node.module or "": importlib.import_module(node.module or "") for node in ours}
    named = [(node.module or "", one.name) for node in ours for one in node.names]
    return [f"{module} has no {name}" for module, name in named if not hasattr(modules[module], name)]
