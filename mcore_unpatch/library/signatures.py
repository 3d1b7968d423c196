"""What a function takes and how it is called, and whether the one fits the other."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from enum import StrEnum
from functools import cache
from typing import Any, NamedTuple


class Misfit(StrEnum):
    """Why a call does not fit."""

    SURPLUS = "surplus"  # more values by position than fit
    UNKNOWN = "unknown"  # keywords that nobody takes
    TWICE = "twice"  # by position and by name
    MISSING = "missing"  # what is required and not given


class Wrong(NamedTuple):
    """What is wrong with a call; of a surplus, how many are given and how many fit."""

    misfit: Misfit
    names: tuple[str, ...]


class Call(NamedTuple):
    """The form of a call: positions, keywords, whether `*` and `**` add more, into how many its result is unpacked."""

    positions: int = 0
    keywords: tuple[str, ...] = ()
    star: bool = False
    double_star: bool = False
    unpacked: int = 0

    @classmethod
    def read(cls, text: str) -> Call:
        """The form that a packed text stands for, as `2*+name,**/3`."""
        form, _, unpacked = text.partition("/")
        positions, _, rest = form.partition("+")
        words = rest.split(",") if rest else []
        keywords = tuple(word for word in words if word != "**")
        return cls(int(positions.rstrip("*")), keywords, positions[-1] == "*", "**" in words, int(unpacked or 0))


class Signature(NamedTuple):
    """A parameter list; defaults as they are written, empty for what is no constant."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...] = ()
    required: frozenset[str] = frozenset()
    position_only: frozenset[str] = frozenset()
    any_position: bool = False
    any_keyword: bool = False
    defaults: tuple[tuple[str, str], ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, in order."""
        return self.positional + self.keyword_only

    def without_first(self) -> Signature:
        """As the callers of a method see it."""
        first = self.positional[:1]
        return self._replace(positional=self.positional[1:], required=self.required.difference(first))

    def misfit(self, call: Call) -> Wrong | None:
        """Why a call does not fit; nothing where it does."""
        if call.positions > len(self.positional) and not self.any_position:
            return Wrong(Misfit.SURPLUS, (str(call.positions), str(len(self.positional))))
        taken = set(self.positional[: call.positions])
        known = set(self.names) - self.position_only
        if unknown := tuple(name for name in call.keywords if name not in known and not self.any_keyword):
            return Wrong(Misfit.UNKNOWN, unknown)
        if twice := tuple(name for name in call.keywords if name in taken and name in known):
            return Wrong(Misfit.TWICE, twice)
        if call.star or call.double_star:
            return None
        given = taken.union(call.keywords)
        missing = tuple(name for name in self.names if name in self.required and name not in given)
        return Wrong(Misfit.MISSING, missing) if missing else None

    def shifted(self, now: Signature, call: Call) -> int | None:
        """The first value by position that means another parameter in a newer list.

        A parameter is only renamed where its name ends alike and what comes next stands where it stood.
        """
        for index, (was, is_now) in enumerate(zip(self.positional[: call.positions], now.positional, strict=False)):
            if was == is_now:
                continue
            fresh = was not in now.names and is_now not in self.names
            common = next((name for name in self.positional[index:] if name in now.positional), None)
            if common is None:
                renamed = len(self.names) == len(now.names)
            else:
                renamed = self.positional.index(common) == now.positional.index(common)
            ends = sorted(name.rpartition("_")[2] for name in (was, is_now))
            if not (fresh and renamed and ends[1].startswith(ends[0])):
                return index
        return None


@cache
def packed_signature(detail: str) -> Signature:
    """Read the one-line form: names, `=` and a plain default behind one, `/`, `*`, `*name` and `**name` as written."""
    lists: tuple[list[str], list[str]] = ([], [])
    required: set[str] = set()
    position_only: frozenset[str] = frozenset()
    any_position = any_keyword = behind_star = False
    defaults: list[tuple[str, str]] = []
    for word in detail.split():
        name, equals, default = word.partition("=")
        if word == "/":
            position_only = frozenset(lists[0])
        elif word.startswith("**"):
            any_keyword = True
        elif word.startswith("*"):
            any_position, behind_star = word != "*", True
        else:
            lists[behind_star].append(name)
            if equals:
                defaults.append((name, default))
            else:
                required.add(name)
    found = (tuple(lists[0]), tuple(lists[1]), frozenset(required), position_only)
    return Signature(*found, any_position, any_keyword, tuple(defaults))


def written_signature(function: Any) -> Signature:
    """The signature of a function of the repository."""
    spec: ast.arguments = function.args
    positional = [*spec.posonlyargs, *spec.args]
    optional = positional[len(positional) - len(spec.defaults) :]
    pairs = [*zip(optional, spec.defaults, strict=True)]
    pairs += [(one, value) for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value is not None]
    defaults = {arg.arg: repr(value.value) if isinstance(value, ast.Constant) else "" for arg, value in pairs}
    return Signature(
        tuple(arg.arg for arg in positional),
        tuple(arg.arg for arg in spec.kwonlyargs),
        frozenset(arg.arg for arg in (*positional, *spec.kwonlyargs) if arg.arg not in defaults),
        frozenset(arg.arg for arg in spec.posonlyargs),
        spec.vararg is not None,
        spec.kwarg is not None,
        tuple(defaults.items()),
    )


def written_call(node: ast.Call, unpacked: int = 0, more: Iterable[str] = ()) -> Call:
    """The form of a call of the repository; more: keywords that are known to be in what it passes as `**rest`."""
    star = any(isinstance(arg, ast.Starred) for arg in node.args)
    positions = sum(not isinstance(arg, ast.Starred) for arg in node.args)
    keywords = tuple(word.arg for word in node.keywords if word.arg)
    is_open = len(keywords) < len(node.keywords)
    keywords += tuple(name for name in more if name not in keywords)
    return Call(positions, keywords, star, is_open, unpacked)
