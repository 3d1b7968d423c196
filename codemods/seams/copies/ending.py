"""The end of a copy as a processor: which of the hook's keywords it takes, and what comes from the context."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeGuard

from mcore_unpatch.codemods.changes import Change, Header, Remove, Replace, above
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.copies.reading import ForwardCopy
from mcore_unpatch.codemods.source import Source, first_line, last_line
from mcore_unpatch.megatron.known import called_with
from mcore_unpatch.megatron.layout import GPT_MODEL
from mcore_unpatch.megatron.versions import RELEASES, parse_version

# What Megatron calls a processor with, in its order.
KEYWORDS = (
    "hidden_states",
    "output_layer",
    "output_weight",
    "labels",
    "loss_mask",
    "input_ids",
    "position_ids",
    "attention_mask",
    "decoder_input",
    "inference_context",
    "packed_seq_params",
    "runtime_gather_output",
    "context",
    "compute_language_model_loss",
    "scale_logits",
    "config",
)
# The fields of compat's HookContext that a value may travel in; everything else goes into its `extra`.
FIELDS = ("temperature", "labels", "mask", "mask_count", "lengths", "keep_mask", "token_ids", "teacher")
_OTHER_FIELDS = ("groups", "extra")
_CONTEXT = "context"
_EXTRA = "extra."  # such a key is one of `extra`, whatever it looks like
# What a processor is given of the model, by another name.
_GIVEN = {
    "output_layer": "output_layer",
    "config": "config",
    "compute_language_model_loss": "compute_language_model_loss",
    "_scale_logits": "scale_logits",
}


@dataclass(frozen=True)
class ProcessorChanges:
    """The function's changes, the keywords that travel in the context, and whether it still wants the model."""

    changes: list[Change]
    travelling: dict[str, str]  # keyword of a call -> key of the context
    bound: bool


def as_processor(copy: ForwardCopy, source: Source, limit: int) -> ProcessorChanges | str:
    """The rewritten function, with lines up to a limit, or why it cannot be one."""
    return _ProcessorWriter(copy, source, limit).write()


class _ProcessorWriter:
    def __init__(self, copy: ForwardCopy, source: Source, limit: int) -> None:
        self.copy, self.source, self.function, self.limit = copy, source, copy.function, limit
        arguments = self.function.args
        self.parameters = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)][1:]
        self.nodes = [node for one in copy.end for node in ast.walk(one)]
        self.used = {node.id for node in self.nodes if isinstance(node, ast.Name)}
        self.stored = {node.id for node in self.nodes if _is_stored(node)}
        self.travelling: dict[str, str] = {}

    def write(self) -> ProcessorChanges | str:
        because = self._look_at_names()
        if because:
            return because
        for name in self.travelling:
            key = _key(name)
            self.travelling[name] = f"{_EXTRA}{name}" if key in self.travelling.values() else key
        given = dict(self._given())
        bound = self._wants_model(given)
        taken = {"hidden_states"} if self.copy.hidden in self.used else set()
        taken |= {name for name in self.used if name in KEYWORDS and name in self._known() - self.travelling.keys()}
        taken |= set() if bound else set(given.values())
        lines = [self._read(name, key) for name, key in self.travelling.items() if name in self.used]
        taken |= {_CONTEXT} if lines else set()
        header = self._header([one for one in KEYWORDS if one in taken], bound)
        changes: list[Change] = [Header(self.function, header, returns=True)]
        if not bound:
            changes += [Replace(node, new) for node, new in given.items()]
        if self.copy.hidden != "hidden_states":
            if "hidden_states" in self.used:
                lines.insert(0, f"{self.copy.hidden} = hidden_states")
            else:
                own = (node for node in self.nodes if isinstance(node, ast.Name) and node.id == self.copy.hidden)
                changes += [Replace(node, "hidden_states") for node in own]
        changes += self._without_megatrons()
        if lines:
            first = next(one for one in self.copy.end if not isinstance(one, ast.Import | ast.ImportFrom))
            changes.append(above(self.source, first, "\n".join(lines)))
        return ProcessorChanges(changes, self.travelling, bound)

    def _without_megatrons(self) -> Iterator[Change]:
        """What is Megatron's goes: before the end with all comments there, behind it statement by statement."""
        start = self.copy.end[0].lineno
        before = [one for one in self.copy.dropped if one.lineno < start]
        yield from remove(self.source, [one for one in self.copy.dropped if one.lineno > start], with_comments=True)
        first = first_line(before[0]) if before else start
        while self.source.is_blank(first - 1) or self.source.is_comment(first - 1):
            first -= 1
        stop = self.source.first_with_comments(self.copy.end[0]) - 1
        for one in before:
            last = last_line(one) if one is not before[-1] else stop
            yield Remove(one, first, last)
            first = last + 1

    def _known(self) -> set[str]:
        """The names that stand for something of the call: parameters, and what was computed of them before."""
        bound = {node.id for one in self.copy.dropped for node in ast.walk(one) if _is_stored(node)}
        return bound | set(self.parameters)

    def _look_at_names(self) -> str:
        """Find what the end asks for; why it cannot have it."""
        arguments, known = self.function.args, self._known()
        rest = arguments.kwarg.arg if arguments.kwarg else ""
        own = self._own()
        for name in (one for one in self.parameters if one not in own and self._default(one) not in {"", "None"}):
            if self.copy.method == "forward" and any(is_read(node, name) for node in ast.walk(self.function)):
                return (
                    f"`{name}` is `{self._default(name)}` by default, and None in Megatron: pass it where the model is "
                    "called, take the default away, then migrate again"
                )
        self.travelling = dict.fromkeys(own, "")
        if asked := sorted(self.used & {"inference_context", "inference_params"} & known):
            return f"line {self._line(asked[0])} asks for `{asked[0]}`: inference calls do not reach a processor"
        if rest in self.used:
            return f"line {self._line(rest)} reads `**{rest}`: name what it takes from there as parameters"
        for name in (
            one for one in dict.fromkeys([*self.parameters, *sorted(known)]) if one in self.used - {self.copy.hidden}
        ):
            if name in own or (name in KEYWORDS and name != _CONTEXT) or self._is_stored_first(name):
                continue
            missing = "Megatron does not pass to" if name in self.parameters else "is computed before"
            return f"line {self._line(name)} uses `{name}`, which {missing} the hook"
        if _CONTEXT in self.used and self.used & self.travelling.keys():
            return f"the name `{_CONTEXT}` is taken in `{self.function.name}`"
        if "loss_mask" in self.used and self._rolls("loss_mask"):
            self.copy.notes.append(
                "with MTP layers, the copy had rolled `loss_mask` by then; a processor gets it as it is"
            )
        return ""

    def _own(self) -> list[str]:
        """The parameters that Megatron's forward has had in no release."""
        if self.copy.method != "forward":
            return []
        computed = {node.id for one in self.copy.dropped for node in ast.walk(one) if _is_stored(node)}
        return [name for name in self.parameters if name not in _upstream("forward") | computed]

    def _rolls(self, name: str) -> bool:
        return any(_is_stored(node) and node.id == name for one in self.copy.dropped for node in ast.walk(one))

    def _is_stored_first(self, name: str) -> bool:
        """Whether the end itself gives a name its value before it reads it, on every way."""
        first = self.copy.end[0]
        for first in self.copy.end:
            if any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(first)):
                break
        names = [node for node in ast.walk(first) if isinstance(node, ast.Name) and node.id == name]
        return isinstance(first, ast.Assign) and all(isinstance(node.ctx, ast.Store) for node in names)

    def _given(self) -> Iterator[tuple[ast.Attribute, str]]:
        """Attributes of the model that are keywords of the hook."""
        for node in self.nodes:
            if isinstance(node, ast.Attribute) and node.attr in _GIVEN and isinstance(node.ctx, ast.Load):
                if isinstance(node.value, ast.Name) and node.value.id == self.copy.model:
                    yield node, _GIVEN[node.attr]

    def _wants_model(self, given: dict[ast.Attribute, str]) -> bool:
        """Whether the end asks for something of the model that is no keyword, or a keyword's name is taken."""
        mentions = sum(isinstance(node, ast.Name) and node.id == self.copy.model for node in self.nodes)
        taken = {name for name in given.values() if name in self.used | set(self.parameters)}
        return mentions > len(given) or bool(taken)

    def _read(self, name: str, key: str) -> str:
        default = self._default(name)
        if key in FIELDS:
            value = f"{_CONTEXT}.{key}"
            return (
                f"{name} = {value}"
                if default in {"", "None"}
                else f"{name} = {default} if {value} is None else {value}"
            )
        key = key.removeprefix(_EXTRA)
        return (
            f'{name} = {_CONTEXT}.extra["{key}"]'
            if not default
            else f'{name} = {_CONTEXT}.extra.get("{key}")'
            if default == "None"
            else f'{name} = {_CONTEXT}.extra.get("{key}", {default})'
        )

    def _default(self, name: str) -> str:
        arguments = self.function.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = [*zip(reversed(positional), reversed(arguments.defaults), strict=False)]
        pairs += [(arg, one) for arg, one in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if one]
        return next((self.source.text(one) for arg, one in pairs if arg.arg == name), "")

    def _header(self, taken: list[str], bound: bool) -> str:
        words = [*([self.copy.model] if bound else []), "*", *taken, "**_"]
        line, indent = ", ".join(words), self.source.indentation(self.function)
        returns = f" -> {self.source.text(self.function.returns)}" if self.function.returns else ""
        if len(indent) + len(f"def {self.function.name}({line}){returns}:") <= self.limit:
            return line
        return "".join(f"\n{indent}    {word}," for word in words) + f"\n{indent}"

    def _line(self, name: str) -> int:
        return next(node.lineno for node in self.nodes if isinstance(node, ast.Name) and node.id == name)


def _key(name: str) -> str:
    """Where a value travels: the field that its name ends in, or a key of its own, marked where it looks like one."""
    if name in FIELDS:
        return name
    last = name.split("_")[-1]
    if last in FIELDS:
        return last
    words = name.split("_")
    alike = [one for one in (*FIELDS, *_OTHER_FIELDS) if one in words or (len(name) > 2 and one.startswith(name))]
    return f"{_EXTRA}{name}" if alike or get_close_matches(name, (*FIELDS, *_OTHER_FIELDS), n=1, cutoff=0.8) else name


def _upstream(method: str) -> set[str]:
    """The parameters that a method has had in any release."""
    found = (called_with(f"{GPT_MODEL}.{method}", parse_version(release)) for release in RELEASES)
    return {name for one in found if one is not None for name in one.names}


def is_read(node: ast.AST, name: str) -> bool:
    """Whether a node asks for the value of a name."""
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
