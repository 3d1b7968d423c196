"""What is known of Megatron's own ways: which patch, by what it does, is answered by what, and since when.

`answers.toml` holds the rows; the first that fits a patch speaks for it. Each has an example that fits and one that
does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate
from functools import cache
from importlib.resources import files

from mcore_unpatch.megatron.versions import Version, parse_version
from mcore_unpatch.records import record


@record
class Answer:
    """One row.

    targets: `Class.method` or `module.name`, with wildcards. shapes and traits: what the patch has to be and do.
    rule: empty for the rule of its shape. verdict: what the row says of a patch on the releases that have the way.
    since: the first release that has it, told by `verify`: a name, or a parameter as `name(parameter)`.
    """

    name: str
    targets: tuple[str, ...]
    verdict: str
    way: str
    example: str
    counterexample: str
    rule: str = ""
    seam: str = "none"
    traits: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    since: str = ""
    verify: str = ""
    pull: int = 0
    anywhere: bool = False  # older releases have a way too, which the steps name
    steps: tuple[str, ...] = ()

    @property
    def needs(self) -> Version:
        """The oldest minor release that has a way; one that needs nothing of Megatron, every release has."""
        return parse_version(self.since) if self.since and not self.anywhere else (0, 0)

    @property
    def reference(self) -> str:
        """The pull request, if it is known; the way itself names the release."""
        return f" (NVIDIA/Megatron-LM#{self.pull})" if self.pull else ""

    def fits(self, names: Iterable[str], shape: str) -> bool:
        """Whether a patch of one of these names, made in that way, may be meant."""
        may = bool(self.targets) and (not self.shapes or shape in self.shapes)
        return may and any(map(_pattern(self.targets).match, names))


@cache
def _pattern(targets: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, targets)))


@cache
def answers() -> tuple[Answer, ...]:
    """Every row, in order."""
    import tomllib

    table = tomllib.loads(files("mcore_unpatch.megatron").joinpath("answers.toml").read_text(encoding="utf-8"))
    for row in table.values():
        texts = {key: value.strip() for key, value in row.items() if isinstance(value, str)}
        row |= {key: tuple(value) for key, value in row.items() if isinstance(value, list)} | texts
    return tuple(Answer(name, **row) for name, row in table.items())
