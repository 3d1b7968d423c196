"""What becomes of a patch on another model, in words: one sentence for each reason."""

from __future__ import annotations

from mcore_unpatch.effects.other_model import Becomes, Elsewhere, Why
from mcore_unpatch.say.effects import RAISES, UNKNOWN
from mcore_unpatch.say.names import leaf, short

ACTS, DEAD = str(Becomes.ACTS), str(Becomes.DEAD)
_CELLS = {Becomes.RAISES: RAISES, Becomes.UNKNOWN: UNKNOWN}
_WORDS = {
    Why.ASKED: "line {line} asks for `{leaf}`",
    Why.GIVEN: "`{name}` on line {line} gives no HybridModel",
    Why.SUBCLASS: "`{name}` is no HybridModel",
    Why.LACKS: "there is no `{short}`",
    Why.READS: "AttributeError: line {line} reads `{short}`",
    Why.PASSES: "TypeError: line {line} passes `{name}`",
    Why.NUMBERS: "`{name}` counts the attention and the MLP of a layer there",
}
_DOES = {
    Becomes.ACTS: "acts",
    Becomes.DEAD: "does nothing",
    Becomes.RAISES: "raises",
    Becomes.RENUMBERED: "acts on layers of other numbers",
    Becomes.HALVES: "runs on each half of a layer",
    Becomes.UNKNOWN: "cannot be told",
}


def cell(elsewhere: Elsewhere) -> str:
    """What stands in a table."""
    return _CELLS.get(elsewhere.becomes, str(elsewhere.becomes))


def sentence(elsewhere: Elsewhere) -> str:
    """What becomes of a patch there, and why."""
    _, why, name, line = elsewhere
    said = name if why == Why.ROW else _WORDS[why].format(name=name, leaf=leaf(name), short=short(name), line=line)
    return f"{_DOES[elsewhere.becomes]}: {said}" if said else _DOES[elsewhere.becomes]
