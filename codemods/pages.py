"""The page of each downstream: what a migration changes there, before and after, and what to check by hand."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """One downstream, as `downstreams.toml` has it."""

    title: str
    covers: str
    changes: str
    before: str
    after: str
    safe: str
    by_hand: str

    def markdown(self) -> str:
        """The page as docs/downstreams shows it."""
        return "\n\n".join(
            [
                f"# {self.title}",
                f"`unpatch migrate` covers {self.covers}.",
                f"## What changes\n\n{self.changes}",
                f"Before:\n\n```python\n{self.before}\n```",
                f"After:\n\n```python\n{self.after}\n```",
                f"## When it is applied\n\n{self.safe}",
                f"## What to check by hand\n\n{self.by_hand}\n",
            ]
        )


@cache
def pages() -> dict[str, Page]:
    """Every page by its name."""
    table = tomllib.loads(files("mcore_unpatch.codemods").joinpath("downstreams.toml").read_text(encoding="utf-8"))
    return {name: Page(**{key: text.strip() for key, text in facts.items()}) for name, facts in table.items()}
