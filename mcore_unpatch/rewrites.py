"""The one way from the tool to its codemods: what they find, what they would do, and the plan of a migration.

Codemods stand above the scanner and the findings, and import both. Nothing of the tool imports them but this module,
and it does so when a name is asked for: a scan that has nothing for them loads none of what a migration needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mcore_unpatch.codemods.planner import downstreams, fixed, plan
    from mcore_unpatch.codemods.registry import answered, codemods, complete, folders, offers, words

__all__ = ["answered", "codemods", "complete", "downstreams", "fixed", "folders", "offers", "plan", "words"]
_HOMES = dict.fromkeys(("downstreams", "fixed", "plan"), "planner")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"mcore_unpatch.codemods.{_HOMES.get(name, 'registry')}"), name)
