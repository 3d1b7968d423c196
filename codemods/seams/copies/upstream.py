"""`GPTModel.forward` and `_postprocess` of every known release, as hashes; what one of their statements does."""

from __future__ import annotations

import ast
import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mcore_unpatch.codemods.fingerprints.normalise import fingerprint
from mcore_unpatch.codemods.syntax import is_name
from mcore_unpatch.megatron.versions import Version, reached

METHODS = ("forward", "_postprocess")
# The parts of the model whose calls are compared argument by argument.
CALLED = ("decoder", "mtp", "embedding", "_preprocess")
_LAST_TOKEN = "materialize_only_last_token_logits"


@dataclass(frozen=True)
class UpstreamBody:
    """One version of a method: its statements up to the decoder's output, then up to the hook, then behind it."""

    releases: tuple[str, ...]
    before: tuple[str, ...]
    hook: tuple[str, ...]
    end: tuple[str, ...]
    calls: tuple[str, ...]  # what of the model is called before the hook
    passed: dict[str, tuple[str, ...]]  # the keywords that the decoder and the like are called with


@cache
def bodies(method: str) -> tuple[UpstreamBody, ...]:
    """The versions that a method has had, oldest first."""
    data = json.loads(files(__package__).joinpath("upstream.json").read_text(encoding="utf-8"))
    return tuple(UpstreamBody(**{name: _frozen(value) for name, value in one.items()}) for one in data[method])


def _frozen(value: Any) -> Any:
    return {name: tuple(words) for name, words in value.items()} if isinstance(value, dict) else tuple(value)


def of_release(method: str, version: Version) -> UpstreamBody:
    """The newest body up to a release, or the newest that is known."""
    fitting = [body for body in bodies(method) if not set(reached(version)).isdisjoint(body.releases)]
    return fitting[-1]


@cache
def known(place: str) -> frozenset[str]:
    """The hashes of all releases for one place: `hook`, what Megatron does before the hook, or `end`."""
    return frozenset(one for method in METHODS for body in bodies(method) for one in getattr(body, place))


def digest(statement: ast.stmt, model: str = "self") -> str:
    """The hash of a whole statement, whatever the function calls the model."""
    if model != "self":
        statement = copy.deepcopy(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and node.id == model:
                node.id = "self"
    return fingerprint(statement, "megatron")


def part_called(node: ast.AST, model: str = "self") -> str:
    """`decoder` of the call `self.decoder(...)`; empty for everything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_name(node.func.value, model):
        return node.func.attr
    return ""


def calls_of(statement: ast.AST, part: str, model: str = "self") -> list[ast.Call]:
    """The calls of a part of the model in a statement."""
    found = (node for node in ast.walk(statement) if isinstance(node, ast.Call))
    return [node for node in found if part_called(node, model) == part]


def of_model(statement: ast.AST, model: str = "self") -> Iterator[str]:
    """The parts of the model that a statement calls."""
    for node in ast.walk(statement):
        if name := part_called(node, model):
            yield name


def keywords_of(body: Sequence[ast.stmt], part: str) -> set[str]:
    """The keywords that a part of the model is called with."""
    calls = [call for statement in body for call in calls_of(statement, part)]
    return {keyword.arg for call in calls for keyword in call.keywords if keyword.arg}


def hook_at(body: Sequence[ast.stmt]) -> int:
    """Where the hook runs, or would have run in a release before it: behind MTP, before the logits."""
    for at, statement in enumerate(body):
        names = {node.attr for node in ast.walk(statement) if isinstance(node, ast.Attribute)}
        hook = isinstance(statement, ast.If) and "output_processor" in ast.unparse(statement.test)
        logits = isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]).startswith("(logits")
        if hook or logits or _LAST_TOKEN in names:
            return at
    return 0
