"""What the library's calls do to a function of the repository that answers them: a replacement, or what overrides."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from mcore_unpatch.code.syntax import last_name, returned_counts, text_of
from mcore_unpatch.effects.records import Cause, Effect, Outcome, Place
from mcore_unpatch.library.detailed import Use
from mcore_unpatch.library.signatures import Misfit, Signature, Wrong, written_signature

# Decorators that leave the parameters of a method as they are.
_TRANSPARENT = {"staticmethod", "classmethod", "no_grad", "inference_mode", "override", "abstractmethod"}


class Answer(NamedTuple):
    """A function that is called by a name of the library's; `taken`: without the object itself."""

    function: Any
    taken: Signature
    target: str
    place: Place

    def not_taken(self, uses: Iterable[Use], label: str, shift: int = 0) -> Iterator[Effect]:
        """Calls that it does not take: one effect for all unknown keywords, one for each other way."""
        wrongs: dict[Wrong, Use] = {}
        for use in uses:
            if use.call is not None:
                wrong = self.taken.misfit(use.call._replace(positions=use.call.positions - shift))
                if wrong is not None:
                    wrongs.setdefault(wrong, use)
        unknown = {wrong: use for wrong, use in wrongs.items() if wrong.misfit == Misfit.UNKNOWN}
        names = tuple(dict.fromkeys(name for wrong in unknown for name in wrong.names))
        first = [(Wrong(Misfit.UNKNOWN, names), use) for use in unknown.values()][:1]
        for wrong, use in (*(pair for pair in wrongs.items() if pair[0] not in unknown), *first):
            cause = Cause(self.target, use.place, (wrong.misfit.value, *wrong.names))
            yield Effect(Outcome.NOT_TAKEN, (label,), cause, self.place, "TypeError")

    def unpacked(self, uses: Iterable[Use], label: str) -> Iterator[Effect]:
        """Callers that unpack another number of values than it gives."""
        counts = returned_counts(self.function)
        for use in uses if counts and 0 not in counts else ():
            wanted = use.call.unpacked if use.call is not None else 0
            if wanted and wanted not in counts:
                cause = Cause(self.target, use.place, (*map(str, sorted(counts)), str(wanted)))
                yield Effect(Outcome.UNPACKED, (label,), cause, self.place, "ValueError")
                return

    def dropped(self, before: Iterable[Use], now: Iterable[Use], label: str) -> Iterator[Effect]:
        """Keywords that are passed now and were not before, and that `**rest` swallows."""
        rest = self.function.args.kwarg.arg if self.function.args.kwarg is not None else ""
        known = {*self.taken.names, *(name for use in before if use.call for name in use.call.keywords)}
        for use in now if rest else ():
            fresh = (name for name in (use.call.keywords if use.call is not None else ()) if name not in known)
            if lost := tuple(name for name in fresh if drops(self.function, rest, name)):
                yield Effect(Outcome.DROPPED, (label,), Cause(self.target, use.place, lost), self.place)
                return


def method_takes(method: Any) -> Signature | None:
    """What calls of a method of the repository can pass; nothing where a decorator may change that."""
    marks = {last_name(one.func if isinstance(one, ast.Call) else one) for one in method.decorator_list}
    whole = written_signature(method) if marks <= _TRANSPARENT else None
    return whole if whole is None or "staticmethod" in marks else whole.without_first()


def drops(function: Any, rest: str, name: str) -> bool:
    """Whether `**rest` is read for other names alone: it is never handed on, nor asked for `name`."""
    body = function.body if isinstance(function.body, list) else [function.body]
    nodes = [node for statement in body for node in ast.walk(statement)]
    reads = {id(node) for node in nodes if isinstance(node, ast.Name) and node.id == rest}
    keys = [key for node in nodes if (key := _key_asked(node, reads)) is not None]
    return name not in keys and len(keys) == len(reads)


def _key_asked(node: ast.AST, held: set[int]) -> str | None:
    """The key of `held["key"]`, `held.get("key")`, `held.pop("key")` and `"key" in held`."""
    of: Any = None
    key: Any = None
    if isinstance(node, ast.Subscript):
        of, key = node.value, node.slice
    elif isinstance(node, ast.Call) and last_name(node.func) in ("get", "pop") and node.args:
        of, key = getattr(node.func, "value", None), node.args[0]
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        of, key = node.comparators[0], node.left
    return text_of(key) if id(of) in held else None
