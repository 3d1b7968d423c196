"""The bodies of `GPTModel.forward` and `_postprocess` of every known release, as hashes of their statements."""

from __future__ import annotations

import ast
import copy
import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mcore_unpatch.codemods.fingerprints.normalise import fingerprint
from mcore_unpatch.megatron.versions import Version, parse_version

METHODS = ("forward", "_postprocess")


@dataclass(frozen=True)
class Body:
    """One version of a method: its statements up to the decoder's output, then up to the hook, then behind it."""

    releases: tuple[str, ...]
    before: tuple[str, ...]
    hook: tuple[str, ...]
    end: tuple[str, ...]
    calls: tuple[str, ...]  # what of the model is called before the hook
    passed: dict[str, tuple[str, ...]]  # the keywords that the decoder and the like are called with


@cache
def bodies(method: str) -> tuple[Body, ...]:
    """The versions that a method has had, oldest first."""
    data = json.loads(files(__package__).joinpath("upstream.json").read_text(encoding="utf-8"))
    return tuple(Body(**{name: _frozen(value) for name, value in one.items()}) for one in data[method])


def _frozen(value: Any) -> Any:
    return {name: tuple(words) for name, words in value.items()} if isinstance(value, dict) else tuple(value)


def of_release(method: str, version: Version) -> Body:
    """The newest body of a minor release, or the newest that is known."""
    fitting = [body for body in bodies(method) if any(parse_version(one) <= version for one in body.releases)]
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
