"""Write `mcore_unpatch/megatron/slots.json`: in which slots the specs that Megatron makes name which of its classes.

A slot is a field of a `...Submodules` dataclass, or `module` of a layer's ModuleSpec. Read from the calls in the newest
release that names a class, through variables, helper functions and the providers of backends; the most used slot first.

    python tools/build_megatron_slots.py                       # every release that is known, fetched with pip
"""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from mcore_unpatch.megatron import history
from mcore_unpatch.megatron.definitions import module_files
from mcore_unpatch.upgrade.sources import download

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "slots.json"

_DEEPEST = 6  # calls and variables on the way from a slot to a class
_AROUND = {"partial": 0, "not_none": 0, "cast": 1, "replace": 0}  # which argument is the class
Scope = ast.FunctionDef | ast.Module


class Specs:
    """The spec functions of one release."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self._classes: set[str] = set()
        self._functions: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        self._provided: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        self._calls: list[tuple[ast.Call, Scope]] = []
        self._defaults: list[tuple[str, str, ast.expr, Scope]] = []
        for tree in trees:
            self._take(tree, tree)

    def slots(self) -> dict[str, list[str]]:
        """Each class that is named, and its slots."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for slot, value, scope in self._filled():
            for name in self._named(value, scope):
                found[name][slot] += 1
        return {name: sorted(slots, key=lambda one: (-slots[one], one)) for name, slots in sorted(found.items())}

    def _take(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.ClassDef):
            self._classes.add(node.name)
            fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
            if node.name.endswith("Submodules"):
                self._defaults += [(node.name, one.target.id, one.value, scope) for one in fields if one.value]
            if node.name.endswith("SpecProvider"):
                for method in (one for one in node.body if isinstance(one, ast.FunctionDef)):
                    self._provided[method.name].append(method)
        elif isinstance(node, ast.FunctionDef):
            scope = node
            self._functions[node.name].append(node)
        elif isinstance(node, ast.Call) and _leaf(node.func).endswith("Submodules"):
            self._calls.append((node, scope))
        for child in ast.iter_child_nodes(node):
            self._take(child, scope)

    def _filled(self) -> Iterator[tuple[str, ast.expr, Scope]]:
        for call, scope in self._calls:
            for keyword in call.keywords:
                if keyword.arg is not None:
                    yield f"{_leaf(call.func)}.{keyword.arg}", keyword.value, scope
        for owner, slot, value, scope in self._defaults:
            yield f"{owner}.{slot}", value, scope
        for name, functions in self._functions.items():
            if name.startswith("get_") and "layer" in name and "spec" in name:
                for function in functions:
                    for value in _returned(function):
                        if isinstance(value, ast.Call) and _leaf(value.func) == "ModuleSpec":
                            yield "ModuleSpec.module", value, function

    def _named(self, node: ast.expr, scope: Scope, depth: int = 0) -> set[str]:
        """The classes that an expression may be, or be a spec of."""
        several: list[tuple[ast.expr, Scope]] = []
        match node:
            case ast.Name(id=name) if name in self._classes:
                return {name}
            case ast.Attribute(value=ast.Name(id=name)) if name in self._classes:
                return {name}  # a classmethod that builds it
            case ast.Attribute(value=ast.Call() as call):
                several = [(call, scope)]
            case ast.Name(id=name):
                several = [(value, scope) for value in _assigned(name, scope)]
            case ast.IfExp():
                several = [(node.body, scope), (node.orelse, scope)]
            case ast.BoolOp():
                several = [(value, scope) for value in node.values]
            case ast.Tuple(elts=[first, *_]):
                several = [(first, scope)]  # the class, then its submodules
            case ast.Call() if _leaf(node.func) == "ModuleSpec":
                several = [(one.value, scope) for one in node.keywords if one.arg == "module"]
            case ast.Call() if (index := _AROUND.get(_leaf(node.func))) is not None:
                several = [(one, scope) for one in node.args[index : index + 1]]
            case ast.Call(func=ast.Attribute(attr=name)) if name in self._provided:
                several = [(value, one) for one in self._provided[name] for value in _returned(one)]
            case ast.Call(func=ast.Name(id=name)):
                several = [(value, one) for one in self._functions.get(name, []) for value in _returned(one)]
        if depth == _DEEPEST:
            return set()
        return {name for value, where in several for name in self._named(value, where, depth + 1)}


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    return [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]


def _assigned(name: str, scope: Scope) -> Iterator[ast.expr]:
    """What a variable of a function, or the first of several that are unpacked, is set to."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
                if isinstance(first, ast.Name) and first.id == name:
                    yield node.value


def _leaf(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def read(folder: Path) -> dict[str, list[str]]:
    """The slots of one unpacked release."""
    return Specs(ast.parse(file.read_bytes()) for _, file in module_files(folder)).slots()


def main() -> None:
    """Fetch the releases, read them and write the file."""
    found: dict[str, list[str]] = {}
    for release in history.releases():
        found |= read(download(release))
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(' '.join(slots))}" for name, slots in sorted(found.items()))
    OUTPUT.write_text(f"{{\n{lines}\n}}\n")
    print(f"{OUTPUT.name}: {len(found)} classes")


if __name__ == "__main__":
    main()
