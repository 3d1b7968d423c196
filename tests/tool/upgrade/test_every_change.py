"""Every definition, keyword and method that a release took away, used once: each use is reported, and no other.

What went is read from the two sources by a few lines of `ast` that know nothing of the tool.
"""

import ast
import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from checking import write_files
from command import unpatch
from downloads import unpacked

OLD, NEW = "0.18.2", "0.19.2"


def modules(release: str) -> dict[str, ast.Module]:
    root = unpacked("megatron-core", release)
    files = {file: file.relative_to(root).with_suffix("") for file in (root / "megatron" / "core").rglob("*.py")}
    return {".".join(name.parts).removesuffix(".__init__"): parsed(file) for file, name in files.items()}


def parsed(file: Path) -> ast.Module:
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):
        return ast.parse(file.read_bytes())


def names(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a module binds, in every branch of it."""
    bound: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            bound[node.name] = node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            bound |= {(alias.asname or alias.name).partition(".")[0]: node for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            bound |= {part.id: node for part in ast.walk(node) if isinstance(part, ast.Name)}
        else:
            for inner in ("body", "orelse", "finalbody"):
                bound |= names(getattr(node, inner, []))
            for handler in getattr(node, "handlers", []):
                bound |= names(handler.body)
    return bound


def parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [parameter.arg for parameter in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def call(function: ast.FunctionDef, keyword: str) -> str:
    """A call that fits the older release and passes the keyword."""
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    required = [parameter.arg for parameter in plain[: len(plain) - len(arguments.defaults)]]
    required += [
        parameter.arg
        for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    return f"{function.name}({', '.join(f'{name}=x' for name in dict.fromkeys([*required, keyword]))})"


def uses_of_what_went() -> Iterator[str]:
    """A function each, whose second line imports a name and whose third uses it."""
    new = modules(NEW)
    for module, tree in modules(OLD).items():
        if module in new and any(alias.name == "*" for node in ast.walk(new[module]) for alias in aliases(node)):
            continue
        now = names(new[module].body) if module in new else {}
        for name, node in names(tree.body).items():
            after = now.get(name)
            use = f"def use(x):\n    from {module} import {name}\n    return "
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and after is None and f"{module}.{name}" not in new:
                yield use + name
            if plain(node) and plain(after) and not after.args.kwarg:
                yield from (use + call(node, word) for word in parameters(node) if word not in parameters(after))
            if isinstance(node, ast.ClassDef) and isinstance(after, ast.ClassDef) and not after.bases:
                yield from (use + f"{name}.{method}(x)" for method in methods(node) if method not in methods(after))


def aliases(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.ImportFrom) else []


def plain(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.FunctionDef) and not node.decorator_list


def methods(node: ast.ClassDef) -> list[str]:
    return [part.name for part in node.body if isinstance(part, ast.FunctionDef) and not part.name.startswith("__")]


@pytest.mark.slow
def test_each_use_of_what_went_is_reported_and_no_other(tmp_path: Path) -> None:
    gone = list(uses_of_what_went())
    assert len(gone) > 30
    stays = [
        "def use(x):\n    from megatron.core.models.gpt import GPTModel\n    return GPTModel",
        "def use(x):\n    from megatron.core.parallel_state import get_data_parallel_group as g\n    return g(True)",
    ]
    files = {f"use_{number}.py": f"{text}\n" for number, text in enumerate([*gone, *stays])}
    write_files(tmp_path, files)
    result = unpatch("upgrade", "--from", OLD, "--to", NEW, "--all", "--output-format", "json", cwd=tmp_path)
    reported = {Path(item["path"]).name for item in json.loads(result.out)["uses"]}
    assert sorted(set(files) - reported) == [f"use_{len(gone)}.py", f"use_{len(gone) + 1}.py"]
