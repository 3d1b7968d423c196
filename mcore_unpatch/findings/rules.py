"""The rules: read from `rules.toml`, selected by code or family prefix."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from mcore_unpatch.errors import UsageError
from mcore_unpatch.records import record

OFF_BY_DEFAULT = ("MCU75", "MCU9")  # offers and mocks: no patch, so that no gate fails for one unasked
UNUSED_IGNORE = "MCU001"
SWITCHED_OFF = "MCU805"
MOCK_RULES = ("MCU901", "MCU902")
DOCS = "https://github.com/mcore-unpatch/mcore-unpatch/blob/main/docs/rules.md"


@record
class Rule:
    """One rule, as `unpatch explain` shows it."""

    code: str
    name: str
    summary: str
    why: str
    before: str = ""
    after: str = ""
    versions: str = "any"
    seam: str = "output"  # of a codemod's rule: what its findings can move to
    url: str = ""  # where it is documented, if not here

    @property
    def sentence(self) -> str:
        """The summary with a capital, unless it begins with a name such as veRL."""
        first = self.summary.partition(" ")[0]
        return f"{first.capitalize() if first.islower() else first}{self.summary[len(first) :]}."

    @property
    def link(self) -> str:
        """Where the documentation of the rule stands."""
        return self.url or (f"{DOCS}#{self.code.lower()}-{self.name}" if self.code.startswith("MCU") else "")


@cache
def _table() -> dict[str, dict[str, str]]:
    import tomllib

    return tomllib.loads(files("mcore_unpatch.findings").joinpath("rules.toml").read_text(encoding="utf-8"))


@cache
def families() -> dict[str, str]:
    """Family prefix -> what it is about."""
    from mcore_unpatch.rewrites import codemods

    return {**_table()["families"], **{prefix: text for one in codemods() for prefix, text in one.families.items()}}


def family(code: str) -> str:
    """The family of a rule: the longest prefix that there is."""
    return max((prefix for prefix in families() if code.startswith(prefix)), key=len)


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its code, in order: those of the scanner, and those that codemods declare."""
    from mcore_unpatch.rewrites import codemods

    known = {rule.code: rule for codemod in codemods() for rule in codemod.all_rules}
    for code, facts in _table().items():
        if code != "families":
            known[code] = Rule(code, **{name: text.strip() for name, text in facts.items()})
    return dict(sorted(known.items()))


def find(code: str) -> Rule:
    """The rule with a code or name; raises `UsageError` with the nearest ones."""
    for rule in rules().values():
        if code.upper() == rule.code or code.lower() == rule.name:
            return rule
    raise UsageError(f"unknown rule {code!r}{_nearest(code)}; `unpatch rules` lists all of them")


def _nearest(code: str) -> str:
    """The rules that may have been meant, by code or by name."""
    from difflib import get_close_matches

    if code.upper() in families():
        return f": it is a family, which `unpatch rules {code.upper()}` lists"
    codes = get_close_matches(code.upper(), rules(), 3, 0.5)
    near = codes or get_close_matches(code.lower(), (rule.name for rule in rules().values()), 3)
    return f"; the nearest {'is' if len(near) == 1 else 'are'} {', '.join(near)}" if near else ""


@record
class Selection:
    """Which rules count: the longest matching prefix decides, as in other linters."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    @classmethod
    def parse(cls, select: list[str], ignore: list[str]) -> Selection:
        """Codes and prefixes as the user wrote them; raises `UsageError` for one that no rule has."""
        return cls(_prefixes(select), _prefixes(ignore))

    def __contains__(self, code: str) -> bool:
        chosen, refused = _longest(code, self.select), _longest(code, self.ignore)
        if not self.select:
            return not refused and not code.startswith(OFF_BY_DEFAULT)
        return chosen > 0 and chosen >= refused

    def names(self, code: str) -> bool:
        """Whether a rule is asked for by its code or its family, and not with all of them."""
        return _longest(code, self.select) > 1

    @property
    def wants_mocks(self) -> bool:
        """Whether a rule of the mock family is on."""
        return any(code in self for code in MOCK_RULES)


def _prefixes(values: list[str]) -> tuple[str, ...]:
    named = {rule.name.upper(): code for code, rule in rules().items()} if values else {}
    given = (part.strip() for value in values for part in value.split(",") if part.strip())
    parts = [named.get(part.upper(), part) for part in given]
    for part in parts:
        if part.upper() != "ALL" and not any(code.startswith(part.upper()) for code in rules()):
            raise UsageError(f"unknown rule or family {part!r}; `unpatch rules` lists all of them")
    return tuple("" if part.upper() == "ALL" else part.upper() for part in parts)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    return max((1 + len(prefix) for prefix in prefixes if code.startswith(prefix)), default=0)
