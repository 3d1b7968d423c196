"""What a model of a library is made of: facts about names, parameter lists, and the ways a name is used."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, cached_property

from mcore_unpatch.records import dataclass, field, record, replace


@record
class Fact:
    """One name of one version.

    kind: module, class, function (methods too), value (an assignment of a module or class body), attribute (what the
    methods of a class set on `self`), or import.
    detail: the parameter list of a function, the bases of a class as written, the dotted name of an import.
    traits: words about it, as `trait` reads them: `property`, `maybe` (not set in any case), `gives:5`, `type:Class`.
    digest: of the normalised body, where comments, docstrings and annotations do not count.
    statements: two bytes of digest per statement of a function, to tell how near a copy is.
    """

    kind: str
    detail: str = ""
    traits: tuple[str, ...] = ()
    digest: bytes = b""
    statements: bytes = b""

    def trait(self, name: str) -> str | None:
        """What stands behind `name:` among the traits; empty for a trait without a value, None where it has none."""
        for word in self.traits:
            key, _, value = word.partition(":")
            if key == name:
                return value
        return None

    def every(self, name: str) -> list[str]:
        """What stands behind `name:`, where it may stand several times."""
        return [word.removeprefix(f"{name}:") for word in self.traits if word.startswith(f"{name}:")]

    @property
    def parameters(self) -> Parameters:
        """The parameter list of a function."""
        return parameters(self.detail)


@dataclass(frozen=True)
class Call:
    """The form of a call: its positions and keywords, whether `*` and `**` add more, how many values it gives."""

    positions: int = 0
    keywords: tuple[str, ...] = ()
    star: bool = False
    double_star: bool = False
    unpacked: int = 0

    def __str__(self) -> str:
        """As models keep it: `2*+name,**/3`."""
        words = ",".join((*self.keywords, *["**"] * self.double_star))
        return f"{self.positions}{'*' * self.star}+{words}{f'/{self.unpacked}' if self.unpacked else ''}"

    @classmethod
    def read(cls, text: str) -> Call:
        """The form that such a text stands for."""
        form, _, unpacked = text.partition("/")
        positions, _, rest = form.partition("+")
        words = rest.split(",") if rest else []
        keywords = tuple(word for word in words if word != "**")
        return cls(int(positions.rstrip("*")), keywords, positions[-1] == "*", "**" in words, int(unpacked or 0))


@dataclass(frozen=True)
class Parameters:
    """A parameter list, without the object itself."""

    positional: tuple[str, ...]
    keyword_only: tuple[str, ...]
    required: frozenset[str]
    position_only: frozenset[str]
    any_position: bool
    any_keyword: bool
    defaults: dict[str, str] = field(default_factory=dict, compare=False)  # as written, empty for what is no constant

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every name, in order."""
        return self.positional + self.keyword_only

    def misfit(self, call: Call) -> str:
        """Why a call does not fit, as the end of a sentence that starts with the caller; empty if it does."""
        if call.positions > len(self.positional) and not self.any_position:
            many = "value" if call.positions == 1 else "values"
            return f"passes {call.positions} {many} by position, where {len(self.positional)} fit"
        taken = set(self.positional[: call.positions])
        known = set(self.names) - self.position_only
        if unknown := [name for name in call.keywords if name not in known and not self.any_keyword]:
            return f"passes {quoted(unknown)}"
        if twice := [name for name in call.keywords if name in taken and name in known]:
            return f"passes {quoted(twice)} twice, by position and by name"
        if call.star or call.double_star:
            return ""
        missing = [name for name in self.names if name in self.required and name not in taken | set(call.keywords)]
        return f"does not pass {quoted(missing)}" if missing else ""

    @property
    def least(self) -> Call:
        """A call with what is required and nothing else."""
        positions = sum(name in self.required for name in self.positional)
        return Call(positions, tuple(name for name in self.keyword_only if name in self.required))

    def meant(self, now: Parameters, call: Call) -> Call:
        """A call of this as it would be made of a newer list: values that stand elsewhere there are passed by name."""
        index = self.shifted(now, call)
        names = self.positional[index : call.positions] if index is not None else ()
        return replace(call, positions=index or 0, keywords=(*call.keywords, *names)) if names else call

    def shifted(self, now: Parameters, call: Call, by_name: bool = False) -> int | None:
        """The first value by position that means another parameter in a newer list; one with a new name is the same.

        It is, where the next parameter that both lists have stands in the same place, or both are as long; `by_name`
        also where both names end in the same word, as others may be something else in the same place.
        """
        pairs = list(zip(self.positional, now.positional, strict=False))
        for index, (was, is_now) in enumerate(pairs[: call.positions]):
            fresh = was not in now.names and is_now not in self.names
            common = next((name for name in self.positional[index:] if name in now.positional), None)
            if common is None:
                renamed = len(self.names) == len(now.names)
            else:
                renamed = self.positional.index(common) == now.positional.index(common)
            ends = sorted(name.rpartition("_")[2] for name in (was, is_now))
            renamed = renamed and (not by_name or ends[1].startswith(ends[0]))  # `q` for `query` is the same word
            if was != is_now and not (fresh and renamed):
                return index
        return None


@cache
def parameters(detail: str) -> Parameters:
    """Read the one-line form: names, `=` and a plain default behind one, `/`, `*`, `*name` and `**name` as written."""
    positional: list[str] = []
    keyword_only: list[str] = []
    required: set[str] = set()
    position_only: frozenset[str] = frozenset()
    any_position = any_keyword = False
    into = positional
    defaults: dict[str, str] = {}
    for word in detail.split():
        name, equals, default = word.partition("=")
        if word == "/":
            position_only = frozenset(positional)
        elif word.startswith("**"):
            any_keyword = True
        elif word.startswith("*"):
            any_position, into = word != "*", keyword_only
        else:
            into.append(name)
            if equals:
                defaults[name] = default
            else:
                required.add(name)
    return Parameters(
        tuple(positional), tuple(keyword_only), frozenset(required), position_only, any_position, any_keyword, defaults
    )


def without_self(detail: str) -> str:
    """The parameter list of a method as its callers see it."""
    first, _, rest = detail.partition(" ")
    return detail if first.startswith("*") else rest.removeprefix("/ ")


def quoted(names: Iterable[str], most: int = 4) -> str:
    """`a`, `b` and 3 more."""
    every = list(names)
    shown = ", ".join(f"`{name}`" for name in every[:most])
    return shown + (f" and {len(every) - most} more" if len(every) > most else "")
