"""Write `mcore_unpatch/megatron/names.json` and `signatures.json`: the API of megatron-core, release by release.

The scanner resolves downstream names against these facts without megatron-core installed. The files hold names only:
modules, classes with their bases and members, functions, re-exports, what annotations say of a function's result and of
an attribute, and the parameter lists that changed. A leading `~` stands for `megatron.core`.

    python tools/build_megatron_api.py RELEASE=FOLDER [RELEASE=FOLDER ...]

Each FOLDER holds one unpacked release (`megatron/...`), given from the oldest to the newest.
"""

from __future__ import annotations

import argparse
import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcore_unpatch.megatron.definitions import module_files

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron"

SETS = {"methods", "attributes", "functions", "values", "state", "callables"}
# Around the one class that matters in an annotation: `Optional[X]`, `list[X]`.
CONTAINERS = {"Optional", "Union", "List", "list", "Sequence", "Iterable", "Tuple", "tuple"}

# What builds a submodule without naming its class: the attribute is known, its class is not.
OPAQUE_BUILDERS = {"build_module", "ModuleList", "ModuleDict", "Sequential", "checkpoint_wrapper"}


def dotted(node: ast.expr) -> str | None:
    """The dotted text of `a.b.c`, or None for any other expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def annotated(node: ast.expr | None) -> list[str]:
    """The classes an annotation names, as they are written."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp):
        return [*annotated(node.left), *annotated(node.right)]
    if isinstance(node, ast.Tuple):
        return [name for element in node.elts for name in annotated(element)]
    if isinstance(node, ast.Subscript):
        outer = (dotted(node.value) or "").rpartition(".")[2]
        return annotated(node.slice) if outer in CONTAINERS else [outer]
    return [name] if node is not None and (name := dotted(node)) else []


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Every statement that runs when a module or class body runs, also below `if` and `try`."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from statements(getattr(node, field, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from statements(handler.body)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The parameter list as one line: names, `=` behind a defaulted one, `*`, `*name` and `**name` as written."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    first_default = len(positional) - len(spec.defaults)
    words = [arg.arg + ("=" if index >= first_default else "") for index, arg in enumerate(positional)]
    if spec.vararg:
        words.append(f"*{spec.vararg.arg}")
    elif spec.kwonlyargs:
        words.append("*")
    words += [a.arg + ("=" if d else "") for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        words.append(f"**{spec.kwarg.arg}")
    return " ".join(words)


class Module:
    """The names one module defines or imports."""

    def __init__(self, name: str, is_package: bool, tree: ast.Module) -> None:
        self.name, self.is_package = name, is_package
        self.classes: dict[str, dict[str, Any]] = {}
        self.functions: set[str] = set()
        self.values: set[str] = set()
        self.imports: dict[str, str] = {}
        self.aliases: dict[str, str] = {}
        self.stars: list[str] = []
        self.callables = {"Callable"}  # and the names that this module gives to such types
        self.signatures: dict[str, str] = {}
        self.returns: dict[str, list[str]] = {}
        # What Megatron itself rebinds with `global` is state, not API: setting it is no patch.
        self.state = {name for node in ast.walk(tree) if isinstance(node, ast.Global) for name in node.names}
        for node in statements(tree.body):
            self._take(node)

    def _take(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.functions.add(node.name)
                self.signatures[f"{self.name}.{node.name}"] = parameters(node)
                self.returns[node.name] = annotated(node.returns)
            case ast.ClassDef():
                self._take_class(node)
            case ast.Import():
                for alias in node.names:
                    if alias.asname:
                        self.imports[alias.asname] = alias.name
                    else:
                        self.values.add(alias.name.partition(".")[0])
            case ast.ImportFrom():
                source = self._absolute(node)
                for alias in node.names:
                    if alias.name == "*":
                        self.stars.append(source)
                    else:
                        self.imports[alias.asname or alias.name] = f"{source}.{alias.name}"
            case ast.Assign():
                names = [t.id for t in node.targets if isinstance(t, ast.Name)]
                self.values.update(names)
                if original := dotted(node.value):
                    self.aliases |= dict.fromkeys(names, original)
                elif isinstance(node.value, ast.Subscript) and annotated(node.value) == ["Callable"]:
                    self.callables.update(names)
            case ast.AnnAssign(target=ast.Name(id=name)):
                self.values.add(name)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
        base = package[: len(package) - node.level + 1]
        return ".".join([*base, *([node.module] if node.module else [])])

    def _take_class(self, node: ast.ClassDef) -> None:
        methods: set[str] = set()
        attributes: set[str] = set()
        submodules: dict[str, str] = {}
        types: dict[str, list[str]] = {}
        returns: dict[str, list[str]] = {}
        for item in statements(node.body):
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
                methods.add(item.name)
                self.signatures[f"{self.name}.{node.name}.{item.name}"] = parameters(item)
                submodules |= self_calls(item)
                types |= self_parameters(item)
                returns[item.name] = annotated(item.returns)
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                types[item.target.id] = annotated(item.annotation)
            elif isinstance(item, ast.Assign):
                attributes.update(t.id for t in item.targets if isinstance(t, ast.Name))
        self.classes[node.name] = {
            "bases": [base for expr in node.bases if (base := dotted(expr))],
            "methods": methods,
            "attributes": attributes,
            "submodules": submodules,
            "types": types,
            "returns": returns,
        }


def self_parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, list[str]]:
    """`self.name = parameter` in a method, or `self.name: X = ...`: the attribute and what its annotation names."""
    spec = function.args
    known = {arg.arg: annotated(arg.annotation) for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    found = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Name(id=given)):
                found[name] = known.get(given, [])
            case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                found[name] = annotated(node.annotation)
    return found


def self_calls(function: ast.AST) -> dict[str, str]:
    """`self.name = Something(...)` in a method: the attribute and the dotted text of what was called."""
    found = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = dotted(node.value.func)
            for target in node.targets:
                if called and isinstance(target, ast.Attribute) and dotted(target.value) == "self":
                    found[target.attr] = called
    return found


def read_release(folder: Path) -> dict[str, Module]:
    """Every module of one unpacked release."""
    modules = {}
    for name, path in module_files(folder):
        modules[name] = Module(name, path.stem == "__init__", ast.parse(path.read_text(encoding="utf-8")))
    return modules


def resolve(name: str, modules: dict[str, Module], depth: int = 0) -> str | None:
    """Where a dotted name of this release is defined; None when it lies outside Megatron Core."""
    if name in modules:
        return name
    owner, _, leaf = name.rpartition(".")
    if not owner or depth > 12:
        return None
    if owner not in modules:
        found = resolve(owner, modules, depth + 1)
        if found is None:
            return None
        return resolve(f"{found}.{leaf}", modules, depth + 1) if found in modules else f"{found}.{leaf}"
    module = modules[owner]
    if leaf in module.classes or leaf in module.functions:
        return name
    if leaf in module.imports:
        return resolve(module.imports[leaf], modules, depth + 1)
    if leaf in module.aliases and (found := resolve(f"{owner}.{module.aliases[leaf]}", modules, depth + 1)):
        return found
    for star in module.stars:
        if star in modules and (found := resolve(f"{star}.{leaf}", modules, depth + 1)):
            return found
    return name if leaf in module.values else None


def describe(module: Module, modules: dict[str, Module]) -> dict[str, Any]:
    """One module's facts with every reference resolved."""

    def local(text: str) -> str | None:
        if text.partition(".")[0] in module.values and "." in text:  # `import torch`, then `torch.nn.Module`
            return None
        return resolve(f"{module.name}.{text}", modules)

    def classes_of(annotations: dict[str, list[str]]) -> dict[str, str]:
        """The one class of Megatron's that each annotation names."""
        found = {name: list(filter(None, map(is_class, map(local, texts)))) for name, texts in annotations.items()}
        return {name: known[0] for name, known in found.items() if len(known) == 1}

    def is_class(name: str | None) -> str | None:
        owner, _, leaf = (name or "").rpartition(".")
        return name if owner in modules and leaf in modules[owner].classes else None

    values = set(module.values)
    imports = {name: found for name in module.aliases if (found := local(name)) and found != f"{module.name}.{name}"}
    for name, source in module.imports.items():
        found = resolve(source, modules)
        if found:
            imports[name] = found
        elif source.partition(".")[0] not in {"typing", "collections", "dataclasses", "abc", "__future__"}:
            values.add(name)
    for star in module.stars:
        for name in [*modules[star].classes, *modules[star].functions] if star in modules else []:
            imports.setdefault(name, f"{star}.{name}")
    classes = {}
    for name, facts in module.classes.items():
        submodules = {}
        for attribute, called in facts["submodules"].items():
            if found := is_class(local(called)):
                submodules[attribute] = found
            elif called.rpartition(".")[2] in OPAQUE_BUILDERS:
                submodules[attribute] = ""
        classes[name] = {
            "bases": [local(base) or module.imports.get(base, base) for base in facts["bases"]],
            "methods": facts["methods"],
            "attributes": facts["attributes"],
            "submodules": submodules,
            "types": {name: known for name, known in classes_of(facts["types"]).items() if name not in submodules},
            "returns": classes_of(facts["returns"]),
            "callables": {name for name, texts in facts["types"].items() if module.callables.intersection(texts)},
        }
    return {
        "classes": classes,
        "functions": set(module.functions),
        "returns": classes_of(module.returns),
        "values": values - module.state,
        "state": module.state,
        "imports": imports,
    }


def merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    """Union of two releases' facts; for single values the newer release wins."""
    for key, value in new.items():
        if isinstance(value, dict):
            merge(into.setdefault(key, {}), value)
        elif isinstance(value, set):
            into[key] = into.get(key, set()) | value
        else:
            into[key] = value


def by_source(imports: dict[str, str]) -> dict[str, set[str]]:
    """Imports grouped by the module they come from; `name:original` where the import renames."""
    groups: dict[str, set[str]] = {}
    for name, found in imports.items():
        owner, _, leaf = found.rpartition(".")
        groups.setdefault(owner, set()).add(name if name == leaf else f"{name}:{leaf}")
    return groups


def compact(facts: dict[str, Any]) -> dict[str, Any]:
    """Sets become one sorted line of words, empty entries go."""
    packed: dict[str, Any] = {}
    for key, value in facts.items():
        if key == "imports":
            value = by_source(value)
        if isinstance(value, dict):
            value = compact(value)
        elif isinstance(value, set):
            value = " ".join(sorted(value))
        # A submodule of unknown class is the empty string: that one stays.
        if value or (isinstance(value, str) and key not in SETS):
            packed[key] = value
    return packed


def main() -> None:
    """Read the releases named on the command line and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="+", metavar="RELEASE=FOLDER")
    releases = [argument.split("=", 1) for argument in parser.parse_args().releases]

    modules: dict[str, Any] = {}
    history: dict[str, list[tuple[str, str]]] = {}
    for release, folder in releases:
        read = read_release(Path(folder))
        for module in read.values():
            merge(modules.setdefault(module.name, {}), describe(module, read))
            for name, line in module.signatures.items():
                lines = history.setdefault(name, [])
                if not lines or lines[-1][1] != line:
                    lines.append((release, line))
    signatures = {name: dict(lines) for name, lines in sorted(history.items()) if len(lines) > 1}
    write("names.json", {"releases": [r for r, _ in releases], "modules": compact(modules)})
    write("signatures.json", signatures)


def write(name: str, table: dict[str, Any]) -> None:
    """One JSON file, a line per entry so that a diff between releases can be read."""
    text = json.dumps(table, separators=(",", ":")).replace('"megatron.core', '"~').replace('},"~', '},\n"~')
    (OUTPUT / name).write_text(text + "\n", encoding="utf-8")
    print(f"{name}: {len(text)} bytes")


if __name__ == "__main__":
    main()
