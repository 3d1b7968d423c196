"""Decide from bytes alone which files can hold a patch of Megatron Core; only those are parsed."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache

from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.versions import BESIDE

# No pattern here can take longer than a fixed number of steps for each byte: what may be long is taken at once (`++`)
# or ends after so many bytes. Most begin with literal bytes, and few are joined by `|`: those are searched for fast.
# For that, what must stand before those bytes is asked behind them: `del(?<!\wdel)`.
# Between any two tokens may stand white space, continued lines and, in brackets, comments.
_GAP = rb"(?:[\s\\]|#[^\n]*+\n)*+"


@lru_cache(64)
def _tokens(pattern: bytes) -> re.Pattern[bytes]:
    """A pattern in which `~` stands for what may stand between two tokens."""
    return re.compile(pattern.replace(b"~", _GAP))


# `.attribute = value`, `.attribute: T = value`, `.attribute, other = ...`, `[a.attribute] = ...`
_TO = (
    rb"~([A-Za-z_]\w*+)(?=((?:[\s\\)\]]|#[^\n]*+\n)*+(?:[:,][^=]{0,300}+|<<|>>|[-+*/%@&|^]{1,2}+)?)=(?!=)"
    rb"(?:[\s(\[\\])*+([^\n]{0,120}))"
)
_ASSIGNMENT, _BUT_OF_SELF = _tokens(rb"\." + _TO), _tokens(rb"\.(?<![^\w.]self\.)(?<!\Aself\.)" + _TO)
# `for GPTModel.forward in ...`, `with ... as (a, GPTModel.forward):`
_TARGETS = tuple(
    _tokens(word + rb"[\s\\(\[*]++(?:\w++~,[\s\\(\[*]*+)*+\w++(?:~\.~(\w++))++~(?:in\b|[:,)\]])")
    for word in (b"for", b"as")
)
_EXECS = _tokens(rb"exec~\("), _tokens(rb"eval~\(")
_LAYER_ASSIGNMENT = _tokens(rb"layers(?<!\wlayers)~\[[^\]]{0,200}+\]~=(?!=)")
# A value that is written out, and nothing behind it.
_CONSTANT = re.compile(
    rb"=[ \t\f]*+(?:True|False|-?[0-9][\w.]*+|\{\}|[fbrFBR]{0,2}(?:\"[^\"\\\n]*+\"|'[^'\\\n]*+'))[ \t\f]*+(?:[#;\n]|$)"
)
_HTAP = re.compile(rb"[\w.]*+")  # read backwards
_LOOK_BACK, _FAR_BACK = 300, 800
# `else:`, `Args:` of a docstring; of an annotation the type stands on the same line.
_HEAD_OF_A_BLOCK = re.compile(rb"[\s)\]]*+:[ \t\f]*+(?:#[^\n]*+)?\n")
_BRACKETS = re.compile(rb"[()\[\]{}]")
_STRING_OR_COMMENT = re.compile(rb"\"[^\"\\\n]*+\"|'[^'\\\n]*+'|#[^\n]*+")
# `name: torch.Tensor = ...`: the type of a name, and `# ... .`: a comment.
_TYPE_OF_A_NAME = re.compile(rb"[ \t]*+(?!(?:else|try|finally)\b)\w++[ \t]*+:(?!=)")
_KEYWORD = re.compile(rb"(?:^|\W)(?:for|as|in|and|or|not|if|else|return|yield|await|assert|del|is|while|elif|with)$")
_SETATTR = re.compile(rb"setattr(?:__)?\(\s*+([^\s,()\[\]#]{0,200}+)\s*+,\s*+(?:[\"'](\w{1,100}+)[\"']\s*+(?=,))?")
_DEF = re.compile(rb"def[\s\\]++(\w++)")
_SELF = [_tokens(head + rb"def[\s\\]++\w++[\s\\]*+\(~self\b") for head in (rb"\n", rb"\nasync[ \t]++")]
_NAMESPACES = (b"getsource", b"__dict__", b"__globals__", b"__dataclass_fields__", b"meta_path", b"path_hooks")
_VARS = re.compile(rb"vars(?<!\wvars)\b")
_CHILDREN = _tokens(rb"\.~_modules\b")
_CHILD_SETTERS = (b"add_module", b"register_module", b"set_submodule")
_HOOK, _HEAD = b"register_forward", b"output_layer"  # a hook on the LM head
_SYS_MODULES = [_tokens(rb"sys~\.~modules\b"), _tokens(rb"import~sys~as\b"), _tokens(rb"from~sys~import\b")]
_MOCKS = (b"monkeypatch", b"mock")
# A class, or an object and a name of it.
_GIVEN = (
    rb"~\(~(?:\w++~=~)?(?:[\w.\[\]\s\\]{1,200}+,~(?:\w++~=~)?[\"'][\w.]++[\"']|"
    rb"(?:[\w.\[\]\s\\]{1,200}+,~)?(?:\w+~\.~)*[A-Z]\w++~[,.)])"
)
_PATCH_VERBS = (b"patch", b"Patch", b"override", b"swap", b"replace", b"substitute", b"wrap")
_PATCH_CALLS = {verb: _tokens(verb + rb"\w{0,100}+" + _GIVEN) for verb in _PATCH_VERBS}
# A name that is computed, on an object that the function or the class around may be given.
_COMPUTED = _tokens(rb"setattr(?:__)?~\(~(?!self,)([\w.]{1,200}+)~,~(?![\"'])[\w.]{1,200}+")
_OTHER_CLASS = _tokens(rb"\b(\w++)~\.~__class__~=(?!=)")
# What begins with any word is slow to look for: first what each of these must have.
_GIVES = (
    (b"setattr", re.compile(rb"setattr"), _COMPUTED),
    (b"__class__", _tokens(rb"__class__~=(?!=)"), _OTHER_CLASS),
)
_LEVELS = 3  # helpers that call helpers
_NEAREST = 200  # definitions above a place
_DEFINITION = re.compile(
    rb"^([ \t]*+)(?:class[ \t]++(\w++)|(?:async[ \t]++)?def[ \t]++(\w++)([^)]{0,1000}+))", re.MULTILINE
)
STRING_TARGETS = _tokens(rb"megatron(?<=[\"']megatron)(?:\.|[\"']~(?:[+\"']|[fFrRbBuU]{1,2}[\"']))")
SOURCE_FILES = re.compile(rb"megatron/[\w/]{1,200}+\.py[\"'][ \t]*+:")  # the keys of a table
# A root that names are put together from: `f"{ROOT}.core"`.
_ROOT = re.compile(rb"megatron(?<=[\"']megatron)[\"'.]")
_BY_NAME = (b"import_module", b"__import__")
# Calls that matter by a word in them, and by more than that.
_CALL_WORDS = (b"setattr", b"delattr", b"vars", b"patch", b"exec", _HOOK, *_NAMESPACES, *_CHILD_SETTERS)
# `put = setattr`, `put = partial(setattr, GPTModel)`, `names = vars(module)`: what goes by another name. The patterns
# find what is named, by a word in it; the next one, in what stands before it, the name.
_NAMED_WORDS = (b"setattr", b"vars", b"__dict__", b"_modules", b"patch")
_NAMED = {
    b"setattr": _tokens(rb"setattr\b(?!~\()"),
    b"vars": _tokens(rb"vars\b"),
    b"__dict__": _tokens(rb"__dict__"),
    b"_modules": _tokens(rb"_modules\b"),
    b"patch": _tokens(rb"patch~\.~object\b(?!~\()"),
}
# `from unittest.mock import patch as replaced`
_IMPORTED_AS = {
    word: _tokens(rb"%b(?<!\w%b)[\s\\]++as[\s\\]++(\w++)" % (word, word))
    for word in (b"patch", b"mock", b"setattr", b"partial")
}
_NAME_OF = _tokens(rb"(\w++)~=(?!=)~[\w.(\s\\]*+$")
_DELETION = re.compile(rb"del(?<!\wdel)[\s\\(]++(?!self\b)[^\n=]{1,200}+")
_IMPORT = re.compile(
    rb"\n[ \t]*+(?:from[ \t]++([\w.]++)[ \t]++import\b[ \t]*+(\([^)]*+|[^\n]*+)|import[ \t]++([\w., \t]++))"
)
_WORD = re.compile(rb"\w++")
_NAME = re.compile(r"(?:^|[,(])\s*+([A-Za-z_]\w*+)")
_IMPORTS_MEGATRON = _tokens(rb"\b(?:import|from)\b~megatron\b")
# Packages of which no name is known.
_IN_NO_WHEEL = _tokens(rb"megatron(?:~\.~|[\s\\]++import[\s\\(]++)(?:%b)\b" % "|".join(BESIDE).encode())
_MODELS = (b"GPTModel", b"HybridModel", b"MambaModel")
_METHOD_OF_A_MODEL = re.compile(rb"\n[ \t]++(?:async )?+def (?:forward|_postprocess)\(")


def plain(data: bytes) -> bytes:
    """The bytes as Python reads names: some letters of Unicode are other spellings of plain ones."""
    return data if data.isascii() else _normal(data)


@lru_cache(16)  # of one file it is asked several times, and of those it imports in between
def _normal(data: bytes) -> bytes:
    text = data.decode(errors="replace")
    return data if unicodedata.is_normalized("NFKC", text) else unicodedata.normalize("NFKC", text).encode()


def words_of(data: bytes) -> set[bytes]:
    """The names and other words of a file."""
    return set(_WORD.findall(plain(data)))


def mentions_megatron(path: str, data: bytes) -> bool:
    """Whether a file or its path says Megatron."""
    return b"egatron" in data or b"mcore" in data or "megatron" in path or "mcore" in path


def may_install(data: bytes, mocks: bool) -> bool:
    """Whether a file that says Megatron has a statement of a form a patch needs."""
    return bool(
        (b"megatron" in data and _IN_NO_WHEEL.search(data))
        or calls_matter(data, mocks)
        or any(_Assignments(data).plausible())
        or (b"layers" in data and _LAYER_ASSIGNMENT.search(data))
        or any(match[1] in _known_attributes() for pattern in _TARGETS for match in pattern.finditer(data))
        or (b"del" in data and _may_delete(data))
    )


def may_take_hook(data: bytes) -> bool:
    """Whether a file may define a model of its own on one of Megatron's: a subclass or a wrapper."""
    return any(word in data for word in _MODELS) and b"class" in data and _METHOD_OF_A_MODEL.search(data) is not None


def imports_megatron(data: bytes) -> bool:
    """Whether a file gets hold of Megatron itself: by an import statement, or by name."""
    return b"megatron" in data and bool(_IMPORTS_MEGATRON.search(data) or _ROOT.search(data))


def calls_matter(data: bytes, mocks: bool) -> bool:
    """Whether calls of a file have to be looked into, not only assignments."""
    if (
        any(word in data for word in _NAMESPACES)
        or (b"vars" in data and _VARS.search(data))
        or (_HOOK in data and _HEAD in data)
        or any(word in data for word in _CHILD_SETTERS)  # m.add_module("output_layer", x)
        or (b"_modules" in data and _CHILDREN.search(data))
        or (b"modules" in data and any(pattern.search(data) for pattern in _SYS_MODULES))
        or next(_runs_text(data), None) is not None
    ):
        return True
    if b"megatron" in data and (
        STRING_TARGETS.search(data)
        or SOURCE_FILES.search(data)
        or (any(word in data for word in _BY_NAME) and _ROOT.search(data))
    ):
        return True
    if b"setattr" in data and _may_setattr(data):
        return True
    if mocks and b"patch" in data and any(word in data for word in _MOCKS):
        return True
    return b"megatron" in data and any(_places(_PATCH_VERBS, _PATCH_CALLS, data))


def call_lines(data: bytes) -> list[int]:
    """The lines on which a call that may install a patch can begin or end."""
    data = plain(data)
    if not calls_matter(data, True) and b"delattr" not in data:
        return []
    patterns = [_tokens(rb"\b%b~[.(]" % name) for name in sorted(_aliases(data))]
    patterns += [STRING_TARGETS] if b"megatron" in data else []
    starts = {match.start() for pattern in patterns for match in pattern.finditer(data)}
    starts |= {match.start() for match in _places(_PATCH_VERBS, _PATCH_CALLS, data)}
    starts.update(_runs_text(data))
    starts |= {match.start() for word in _CALL_WORDS if word in data for match in re.finditer(word, data)}
    found: list[int] = []
    position, line = 0, 1
    for start in sorted(starts):
        line += data.count(b"\n", position, start)
        position = start
        if not found or found[-1] != line:
            found.append(line)
    return found


def _runs_text(data: bytes) -> Iterator[int]:
    """Where `exec` or `eval` is called, and no method of that name."""
    for pattern in _EXECS:
        for match in pattern.finditer(data):
            before = data[max(0, match.start() - 1) : match.start()]
            if not before.isalnum() and before not in (b".", b"_"):
                yield match.start()


def _aliases(data: bytes) -> set[bytes]:
    """The names that something goes by which writes attributes."""
    found = {match[1] for match in _places(_IMPORTED_AS, _IMPORTED_AS, data)}
    for match in _places(_NAMED_WORDS, _NAMED, data):
        before = data[max(0, match.start() - _LOOK_BACK) : match.start()]
        if b"=" in before and (name := _NAME_OF.search(before)):
            found.add(name[1])
    return found


def _places(words: Iterable[bytes], patterns: dict[bytes, re.Pattern[bytes]], data: bytes) -> Iterator[re.Match[bytes]]:
    """What the patterns of some words find, each looked for where a file has its word."""
    return (match for word in words if word in data for match in patterns[word].finditer(data))


def installers(data: bytes) -> frozenset[str]:
    """The functions and classes of a file that set what they are given: by a computed name, a class, a method."""
    patterns = [pattern for word, sign, pattern in _GIVES if word in data and sign.search(data)]
    places = [(match[1], match.start()) for pattern in patterns for match in pattern.finditer(data)]
    places += _Assignments(data).of_methods()
    definitions = list(_DEFINITION.finditer(data)) if places else []
    found: set[bytes] = set()
    for _ in range(_LEVELS if places else 0):
        new = {name for path, start in places for name in _given_to(path, data, start, definitions)} - found
        if not new:
            break
        found |= new
        calls = re.finditer(rb"\b(?:%b)\(\s*+(\w++)" % b"|".join(sorted(new)), data)
        places = [(match[1], match.start()) for match in calls]
    return frozenset(map(bytes.decode, found))


def _given_to(path: bytes, data: bytes, start: int, definitions: list[re.Match[bytes]]) -> Iterator[bytes]:
    """The functions around a place that have an object of it as a parameter, the class that keeps it."""
    subject, _, field = path.partition(b".")
    depth = start - data.rfind(b"\n", 0, start)
    above = bisect_left(definitions, start, key=re.Match.start)
    for definition in reversed(definitions[max(0, above - _NEAREST) : above]):
        indent, owner, function, parameters = definition.groups()
        if len(indent) < depth:
            depth = len(indent)
            if owner is not None and field:
                yield owner
            elif function is not None and function[:2] != b"__":
                if subject in _WORD.findall(parameters):
                    yield function
        if not depth:
            return


def calls_one_of(data: bytes, names: Iterable[str]) -> bool:
    """Whether a file has a call of one of these that gives it something by a name."""
    return any(name in data and _tokens(name + rb"~\(~[\w*]").search(data) for name in map(str.encode, names))


class _Assignments:
    """The assignments to attributes of one file, and which of them may be one of a patch."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    @cached_property
    def _functions(self) -> frozenset[bytes]:
        return frozenset(_DEF.findall(self._data))

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
            name = _WORD.match(value)
            if attribute not in _known_attributes() or name is None or _CONSTANT.match(self._data, match.end(2)):
                continue
            if attribute == b"forward" or b"MethodType" in value or b"__get__" in value or name[0] in self._functions:
                yield _path(match), match.start()

    def _is_plausible(self, match: re.Match[bytes]) -> bool:
        """Whether one may be."""
        attribute, _, value = match.groups()
        known = attribute in _known_attributes() or attribute[:2] == b"__"
        if not known and _WORD.match(value) is None:
            return False
        if not attribute.isupper() and attribute[:2] != b"__" and _CONSTANT.match(self._data, match.end(2)):
            return False  # a flag; a module's constants are in capitals
        path = _path(match)
        if not known:
            name = _WORD.match(value)
            known = (
                not path
                or path.rpartition(b".")[2][:1].isupper()
                or b"MethodType" in value
                or b"__get__" in value
                or (name is not None and name[0] in self._functions)
            )
        return known and not _is_type_or_comment(match) and not _is_argument(match)


def _path(match: re.Match[bytes]) -> bytes:
    """The name before the attribute; empty for any other expression."""
    data, end = match.string, match.start()
    found = _HTAP.match(data[max(0, end - _LOOK_BACK) : end].rstrip(b" \t\f\\\n")[::-1])
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


def _may_setattr(data: bytes) -> bool:
    """Whether a `setattr` is not plainly of `self`, or adds to what is neither a class nor imported."""
    known = _known_attributes()

    def may_be_core(subject: bytes) -> bool:
        is_imported = subject.isalnum() and re.search(rb"\b(?:import|as)\s++" + subject, data)
        return bool(subject.rpartition(b".")[2][:1].isupper() or is_imported)

    harmless: int = sum(
        match[1] == b"self" or (match[2] is not None and match[2] not in known and not may_be_core(match[1]))
        for match in _SETATTR.finditer(data)
    )
    return data.count(b"setattr") > harmless


def _may_delete(data: bytes) -> bool:
    """`del GPTModel.forward` and `delattr(GPTModel, "forward")`."""
    known = _known_attributes()
    return b"delattr" in data or any(not known.isdisjoint(_WORD.findall(one)) for one in _DELETION.findall(data))


@cache
def _known_attributes() -> frozenset[bytes]:
    return frozenset(name.encode() for name in api.attribute_names())


def imported_modules(data: bytes) -> list[str]:
    """Names that may be modules as import statements write them, leading dots included."""
    found = []
    for match in _IMPORT.finditer(b"\n" + data):
        if match[1]:
            module = match[1].decode()
            found.append(module)
            prefix = module if module.endswith(".") else f"{module}."
            found += [prefix + name for name in _NAME.findall(match[2].decode(errors="replace"))]
        else:
            found += [part.split()[0] for part in match[3].decode().split(",") if part.strip()]
    return found
