"""Every public name of veRL's three files, in every release, can be called here with the same arguments."""

import ast
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mcore_unpatch.compat.verl import model_forward_1f1b_overlap, model_forward_fused, mtp_patch

MODULES = {m.__name__.rpartition(".")[2]: m for m in (model_forward_fused, mtp_patch, model_forward_1f1b_overlap)}
RELEASES = {
    "0.6.1": ["model_forward_fused", "model_forward_1f1b_overlap"],
    "0.7.1": list(MODULES),
    "0.8.0": list(MODULES),
    "0.9.1": list(MODULES),
}


def _callables(source: str) -> dict[str, tuple[list[str], list[str] | None]]:
    """Public function -> its parameters, and those of the function it makes; public dataclass -> its fields."""
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            found[node.name] = ([field.target.id for field in node.body if isinstance(field, ast.AnnAssign)], None)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            inner = [made for made in node.body if isinstance(made, ast.FunctionDef)]
            returned = node.body[-1]
            makes = isinstance(returned, ast.Return) and bool(inner) and isinstance(returned.value, ast.Name)
            makes = makes and returned.value.id == inner[-1].name
            found[node.name] = (_names(node), _names(inner[-1]) if makes else None)
    return found


def _names(function: ast.FunctionDef) -> list[str]:
    """The parameters in order, with a star before those that are keywords only."""
    arguments = function.args
    return [one.arg for one in arguments.args] + [f"*{one.arg}" for one in arguments.kwonlyargs]


def _parameters(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [f"*{p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters]


@pytest.mark.parametrize("version", RELEASES)
def test_the_names_and_arguments_of_every_release(version: str, verl: Callable[[str], str]) -> None:
    folder = Path(verl(version)) / "verl" / "models" / "mcore"
    for file in RELEASES[version]:
        found = _callables((folder / f"{file}.py").read_text())
        assert found
        for name, (arguments, made) in found.items():
            ours = getattr(MODULES[file], name)
            assert _parameters(ours)[: len(arguments)] == arguments, name
            if made is not None:
                assert _parameters(ours())[: len(made)] == made, name
