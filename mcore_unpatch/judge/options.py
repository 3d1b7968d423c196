"""What a repository reads of Megatron's arguments (`get_args().name`) where no option makes it any more."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.judge.asked import raising
from mcore_unpatch.judge.demands import CALL, IMPORT, Demand
from mcore_unpatch.judge.meaning import only_value, written
from mcore_unpatch.judge.statement import Statement
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron.layout import GONE_OPTIONS
from mcore_unpatch.megatron.versions import TRAINING, parse_version
from mcore_unpatch.scanner.names.resolver import Position, Resolver
from mcore_unpatch.scanner.sources.nodes import walk

_MAKER = f"{TRAINING}.get_args"


def gone(home: Resolver, old: Model, new: Model) -> Iterator[Statement]:
    """Options that the older release has and the newer one has not, where they are read."""
    before, now = parse_version(old.label), parse_version(new.label)
    lost = {name for since, names in GONE_OPTIONS.items() if before < since <= now for name in names}
    lost = {name for name in lost if name.encode() in home.model.data}
    for node in walk(home.model.tree) if lost else ():
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in lost:
            at = Position(home, *home.model.at(node.lineno), node.lineno)
            demand = Demand(f"{_MAKER}.{node.attr}", CALL if at.scope.function else IMPORT, at)
            if _is_made(node.value, home) and demand.runs_on(new, "AttributeError"):
                text = f"`args.{node.attr}` is made by no option of megatron-core {new.label}"
                yield replace(raising(demand, "AttributeError", text, new), caller=demand.name)


def is_option(use: Statement) -> bool:
    """Whether a use is of an argument that an option of Megatron's makes."""
    return use.demand is None and use.name.startswith(f"{_MAKER}.")


def _is_made(node: ast.expr, home: Resolver) -> bool:
    """`get_args()` of Megatron's, or a variable that is set to that alone."""
    value = only_value(node, home) if isinstance(node, ast.Name) else node
    named = value.func if isinstance(value, ast.Call) else None
    meant = written(named, home) if isinstance(named, ast.Attribute | ast.Name) else None
    return meant is not None and all(name.startswith(TRAINING) and name.endswith(".get_args") for name in meant.names)
