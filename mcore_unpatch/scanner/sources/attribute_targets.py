"""Assignments to attributes as the bytes of a file show them, and which of them may be a patch of Megatron Core."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache, cached_property, lru_cache

from mcore_unpatch.megatron import api

# No pattern here can take longer than a fixed number of steps for each byte: what may be long is taken at once (`++`)
# or ends after so many bytes. Most begin with literal bytes, and few are joined by `|`: those are searched for fast.
# For that, what must stand before those bytes is asked behind them: `del(?<!\wdel)`.
# Between any two tokens may stand white space, continued lines and, in brackets, comments.
_GAP = rb"(?:[\s\\]|#[^\n]*+\n)*+"


@lru_cache(64)
def tokens(pattern: bytes) -> re.Pattern[bytes]:
    """A pattern in which `~` stands for what may stand between two tokens."""
    return re.compile(pattern.replace(b"~", _GAP))


# `.attribute = value`, `.attribute: T = value`, `.attribute, other = ...`, `[a.attribute] = ...`
_TO = (
    rb"~([A-Za-z_]\w*+)(?=((?:[\s\\)\]]|#[^\n]*+\n)*+(?:[:,][^=]{0,300}+|<<|>>|[-+*/%@&|^]{1,2}+)?)=(?!=)"
    rb"(?:[\s(\[\\])*+([^\n]{0,120}))"
)
_ASSIGNMENT, _BUT_OF_SELF = tokens(rb"\." + _TO), tokens(rb"\.(?<![^\w.]self\.)(?<!\Aself\.)" + _TO)
# A value that is written out, and nothing behind it.
_CONSTANT = re.compile(
    rb"=[ \t\f]*+(?:True|False|-?[0-9][\w.]*+|\{\}|[fbrFBR]{0,2}(?:\"[^\"\\\n]*+\"|'[^'\\\n]*+'))[ \t\f]*+(?:[#;\n]|$)"
)
_NOTHING = re.compile(rb"=[ \t\f]*+None[ \t\f]*+(?:[#;\n]|$)")
_HTAP = re.compile(rb"[\w.]*+")  # read backwards
LOOK_BACK, _FAR_BACK = 300, 800
# `else:`, `Args:` of a docstring; of an annotation the type stands on the same line.
_HEAD_OF_A_BLOCK = re.compile(rb"[\s)\]]*+:[ \t\f]*+(?:#[^\n]*+)?\n")
_BRACKETS = re.compile(rb"[()\[\]{}]")
_STRING_OR_COMMENT = re.compile(rb"\"[^\"\\\n]*+\"|'[^'\\\n]*+'|#[^\n]*+")
# `name: torch.Tensor = ...`: the type of a name, and `# ... .`: a comment.
_TYPE_OF_A_NAME = re.compile(rb"[ \t]*+(?!(?:else|try|finally)\b)\w++[ \t]*+:(?!=)")
_KEYWORD = re.compile(rb"(?:^|\W)(?:for|as|in|and|or|not|if|else|return|yield|await|assert|del|is|while|elif|with)$")
_DEF = re.compile(rb"def[\s\\]++(\w++)")
_SELF = [tokens(head + rb"def[\s\\]++\w++[\s\\]*+\(~self\b") for head in (rb"\n", rb"\nasync[ \t]++")]
_IMPORTED = re.compile(rb"(?:from|import)[ \t]++(megatron\b[^\n(]*+(?:\([^)]*+)?)")
ANY_WORD = re.compile(rb"\w++")


@cache
def known_attributes() -> frozenset[bytes]:
    """Every name that a patch could replace, as bytes."""
    return frozenset(name.encode() for name in api.attribute_names())


class Assignments:
    """The assignments to attributes of one file, and which of them may be one of a patch."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @cached_property
    def _functions(self) -> frozenset[bytes]:
        return frozenset(_DEF.findall(self._data))

    @cached_property
    def _imported(self) -> frozenset[bytes]:
        """The words of imports from Megatron."""
        said = _IMPORTED.findall(self._data) if b"megatron" in self._data else ()
        return frozenset(word for words in said for word in ANY_WORD.findall(words))

    @cached_property
    def _self_is_given(self) -> bool:
        """Whether a plain function has a parameter `self`, which may be anything."""
        return any(pattern.search(self._data) for pattern in _SELF)

    def plausible(self) -> Iterator[re.Match[bytes]]:
        """Those that may be: by the attribute, its owner or the value."""
        pattern = _ASSIGNMENT if self._self_is_given else _BUT_OF_SELF
        return filter(self._is_plausible, pattern.finditer(self._data))

    def of_methods(self) -> Iterator[tuple[bytes, int]]:
        """The objects, and where, of which an attribute that Megatron has becomes `forward` or another method."""
        for match in _ASSIGNMENT.finditer(self._data):
            attribute, _, value = match.groups()
            name = ANY_WORD.match(value)
            if attribute not in known_attributes() or name is None or _CONSTANT.match(self._data, match.end(2)):
                continue
            if attribute == b"forward" or b"MethodType" in value or b"__get__" in value or name[0] in self._functions:
                yield _path(match), match.start()

    def _is_plausible(self, match: re.Match[bytes]) -> bool:
        """Whether one may be."""
        attribute, _, value = match.groups()
        known = attribute in known_attributes() or attribute[:2] == b"__"
        if not known and (ANY_WORD.match(value) is None or _NOTHING.match(self._data, match.end(2))):
            return False
        path = _path(match)
        imported = path.partition(b".")[0] in self._imported
        if not (imported or attribute.isupper() or attribute[:2] == b"__") and _CONSTANT.match(
            self._data, match.end(2)
        ):
            return False  # a flag; a module's constants are in capitals
        if not known:
            name = ANY_WORD.match(value)
            known = (
                not path
                or path.rpartition(b".")[2][:1].isupper()
                or b"MethodType" in value
                or b"__get__" in value
                or (name is not None and name[0] in self._functions)
                or imported
            )
        return known and not _is_type_or_comment(match) and not _is_argument(match)


def _path(match: re.Match[bytes]) -> bytes:
    """The name before the attribute; empty for any other expression."""
    data, end = match.string, match.start()
    found = _HTAP.match(data[max(0, end - LOOK_BACK) : end].rstrip(b" \t\f\\\n")[::-1])
    return found[0][::-1] if found else b""


def _is_type_or_comment(match: re.Match[bytes]) -> bool:
    """Whether the line begins with `name:`, or with a comment, so that the attribute is no target."""
    data = match.string
    before = data[data.rfind(b"\n", 0, match.start()) + 1 : match.start()]
    return _TYPE_OF_A_NAME.match(before) is not None or before.lstrip()[:1] == b"#"


def _is_argument(match: re.Match[bytes]) -> bool:
    """Whether what looks like an assignment is none for certain: a keyword of a call, or two statements."""
    data, end = match.string, match.start()
    if _HEAD_OF_A_BLOCK.match(match[2]) or _is_over(data[match.start() : match.end(2)]):
        return True
    start = data.rfind(b"\n", 0, max(0, end - _FAR_BACK)) + 1
    window = _STRING_OR_COMMENT.sub(b"", data[start:end])
    # A text that began or ended further up may hold any bracket; what stands behind it is code, or text itself.
    window = window[max(window.rfind(b'"'), window.rfind(b"'")) + 1 :]
    depth = 0
    for bracket in reversed(list(_BRACKETS.finditer(window))):
        sign = bracket[0]
        if sign in b")]}":
            depth += 1
        elif depth:
            depth -= 1
        else:
            head = window[: bracket.start()].rstrip(b" \t\f\\")
            if sign == b"{" or ((head[-1:].isalnum() or head[-1:] in (b"_", b")", b"]")) and not _KEYWORD.search(head)):
                return True
    return False


def _is_over(target: bytes) -> bool:
    """Whether a line's end within what looks like a target ends the statement: no bracket is open there."""
    if b"\n" not in target:
        return False
    target = _STRING_OR_COMMENT.sub(b"", target)
    if b'"' in target or b"'" in target:
        return False
    depth, ends = 0, list[int]()  # how deep the ends of lines stand; those in a bracket that is closed later are none
    *lines, last = target.split(b"\n")
    for line in (*lines, last):
        for bracket in _BRACKETS.findall(line):
            depth += 1 if bracket in b"([{" else -1
            while ends and ends[-1] > depth:
                ends.pop()
        if line is not last and not line.endswith(b"\\"):
            ends.append(depth)
    return bool(ends)
