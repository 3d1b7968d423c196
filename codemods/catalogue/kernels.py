"""Kernels that a faster one can stand beside, under the same name: an offer, since nothing is wrong with them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.codemod import Codemod, Example, Fix, Match, Mends
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.rules import Rule

_NAME, _CLASS, _FILE = "linear_cross_entropy", "LinearCrossEntropy", "utils/kernel/linear_cross_entropy.py"
_SHIM = f"mcore_unpatch.compat.verl.{_NAME}"
_SPEED = "1.3 to 1.9 times as fast on an H200, for FSDP and Megatron alike (docs/beside.md of mcore-unpatch)"
_COMMENT = "1.3 to 1.9 times as fast on an H200, the same to rounding"
_BACK = f"also with MCORE_UNPATCH_OFF=verl.{_NAME} in the environment"


class Kernels(Codemod):
    """The name is bound to the faster kernel where that is installed, once, where it is defined."""

    name, title = "kernels", "veRL's linear cross-entropy kernel"
    offers = _SPEED
    words = (f"{_NAME} = {_CLASS}.apply".encode(),)
    shape, level = "offer", "rounding"
    does = "binds the fused kernel, for Ampere and newer, where torch and triton have what it needs"
    rules = (
        Rule(
            "MCU750",
            "kernels",
            "veRL's kernel `linear_cross_entropy` can have a faster one beside it",
            "Nothing is wrong here, and the rule is off unless selected. The kernel of the same name in "
            f"`{_SHIM}` computes the same to rounding, and is {_SPEED}. It needs no Megatron.",
            seam="output",
        ),
    )
    examples = (
        Example(
            "MCU750",
            path=f"verl/{_FILE}",
            before=f"""
class {_CLASS}(Function):
    ...


{_NAME} = {_CLASS}.apply
""",
            after=f"""
class {_CLASS}(Function):
    ...


try:  # {_COMMENT}
    from {_SHIM} import {_NAME}
except ImportError:  # {_BACK}
    {_NAME} = {_CLASS}.apply
""",
        ),
    )
    covers = f"""
the line of `{_FILE}` that binds the name, in veRL and its forks: every caller has the faster kernel from there
"""
    applied = "Only where it is selected: `unpatch migrate --select kernels`."
    by_hand = f"""
- **Results** differ in rounding; docs/beside.md of mcore-unpatch has the figures.
- **The old kernel** is what runs without torch 2.8 and triton 3.4, and with `MCORE_UNPATCH_OFF=verl.{_NAME}`.
"""

    def find(self, source: Source) -> Iterator[Match]:
        """The statement that binds the name, unless something stands beside it already."""
        for node in source.tree.body if f"/{source.path}".endswith(f"/{_FILE}") else ():
            if isinstance(node, ast.Assign) and source.text(node) == f"{_NAME} = {_CLASS}.apply":
                message = f"binds veRL's kernel `{_NAME}`, which a faster one can stand beside"
                yield Match(node, "MCU750", _NAME, message, f"bind `{_SHIM}` where it is installed")

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """The guarded import, with the old line as its fallback."""
        yield Mends(f"the kernel is {_SPEED}", "rounding")
        assert isinstance(match.node, ast.Assign)
        old = source.text(match.node)
        yield Rewrite(
            match.node,
            f"try:  # {_COMMENT}\n    from {_SHIM} import {_NAME}\nexcept ImportError:  # {_BACK}\n    {old}",
        )
