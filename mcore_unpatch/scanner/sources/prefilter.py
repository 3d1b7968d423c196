"""Decide from bytes alone which files can hold a patch of Megatron Core; only those are parsed."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import lru_cache

from mcore_unpatch.megatron.versions import BESIDE
from mcore_unpatch.scanner.sources.attribute_targets import ANY_WORD, LOOK_BACK, Assignments, known_attributes, tokens
from mcore_unpatch.scanner.sources.texts import telling, without_texts

# `for GPTModel.forward in ...`, `with ... as (a, GPTModel.forward):`
_TARGETS = tuple(
    tokens(word + rb"[\s\\(\[*]++(?:\w++~,[\s\\(\[*]*+)*+\w++(?:~\.~(\w++))++~(?:in\b|[:,)\]])")
    for word in (b"for", b"as")
)
_EXECS = tokens(rb"exec~\("), tokens(rb"eval~\(")
_LAYER_ASSIGNMENT = tokens(rb"layers(?<!\wlayers)~\[[^\]]{0,200}+\]~=(?!=)")
_SETATTR = re.compile(rb"setattr(?:__)?\(\s*+([^\s,()\[\]#]{0,200}+)\s*+,\s*+(?:[\"'](\w{1,100}+)[\"']\s*+(?=,))?")
_NAMESPACES = (b"getsource", b"__dict__", b"__globals__", b"__dataclass_fields__")
_FINDERS = {word: re.compile(rb"%b(?<!\w%b)" % (word, word)) for word in (b"meta_path", b"path_hooks")}
_VARS = re.compile(rb"vars(?<!\wvars)\b")
_CHILDREN = tokens(rb"\.~_modules\b")
_CHILD_SETTERS = (b"add_module", b"register_module", b"set_submodule")
_SYS_MODULES = [tokens(rb"sys~\.~modules\b"), tokens(rb"import~sys~as\b"), tokens(rb"from~sys~import\b")]
_MOCKS = (b"monkeypatch", b"mock")
_MONKEYPATCH = b" monkeypatch."  # what pytest hands to a test
_IMPORTED_AS_MOCK = re.compile(rb"as[\s\\]++monkeypatch\b|monkeypatch[\s\\]*+(?::[^\n,)=]*+)?=")
# A class, or an object and a name of it.
_GIVEN = (
    rb"~\(~(?:\w++~=~)?(?:[\w.\[\]\s\\]{1,200}+,~(?:\w++~=~)?[\"'][\w.]++[\"']|"
    rb"(?:[\w.\[\]\s\\]{1,200}+,~)?(?:\w+~\.~)*[A-Z]\w++~[,.)])"
)
_PATCH_VERBS = (b"patch", b"Patch", b"override", b"swap", b"replace", b"substitute", b"wrap")
_PATCH_CALLS = {verb: tokens(verb + rb"\w{0,100}+" + _GIVEN) for verb in _PATCH_VERBS}
# A name that is computed, on an object that the function or the class around may be given.
_COMPUTED = tokens(rb"setattr(?:__)?~\(~(?!self,)([\w.]{1,200}+)~,~(?![\"'])[\w.]{1,200}+")
_OTHER_CLASS = tokens(rb"\b(\w++)~\.~__class__~=(?!=)")
_ITEM = tokens(rb"\b(?!self\b)(\w++)~\.~(?:__dict__|_modules)~\[")
# What begins with any word is slow to look for: first what each of these must have.
_GIVES = (
    (b"setattr", re.compile(rb"setattr"), _COMPUTED),
    (b"__class__", tokens(rb"__class__~=(?!=)"), _OTHER_CLASS),
    (b"__dict__", tokens(rb"\.~__dict__~\["), _ITEM),
    (b"_modules", tokens(rb"\.~_modules~\["), _ITEM),
    (b"vars", _VARS, tokens(rb"vars~\(~(?!self\b)(\w++)~\)~\[")),
)
_LEVELS = 3  # helpers that call helpers
_NEAREST = 200  # definitions above a place
_FAR_ABOVE = 3000  # bytes
_DEFINITION = re.compile(
    rb"^([ \t]*+)(?:class[ \t]++(\w++)|(?:async[ \t]++)?def[ \t]++(\w++)([^)]{0,1000}+))", re.MULTILINE
)
STRING_TARGETS = tokens(rb"megatron(?<=[\"']megatron)(?:\.|[\"']~(?:[+\"']|[fFrRbBuU]{1,2}[\"']))")
SOURCE_FILES = re.compile(rb"megatron/[\w/]{1,200}+\.py[\"'][ \t]*+:")  # the keys of a table
# A root that names are put together from: `f"{ROOT}.core"`.
_ROOT = re.compile(rb"megatron(?<=[\"']megatron)[\"'.]")
_BY_NAME = (b"import_module", b"__import__")
# Calls that matter by a word in them, and by more than that.
_CALL_WORDS = (
    *(b"setattr", b"delattr", b"vars", b"patch", b"exec", b"_modules"),
    *(*_NAMESPACES, *_FINDERS, *_CHILD_SETTERS),
)
# `put = setattr`, `put = partial(setattr, GPTModel)`, `names = vars(module)`: what goes by another name. The patterns
# find what is named, by a word in it; the next one, in what stands before it, the name.
_NAMED_WORDS = (b"setattr", b"vars", b"__dict__", b"_modules", b"patch")
_NAMED = {
    b"setattr": tokens(rb"setattr\b(?!~\()"),
    b"vars": tokens(rb"vars\b"),
    b"__dict__": tokens(rb"__dict__"),
    b"_modules": tokens(rb"_modules\b"),
    b"patch": tokens(rb"patch~\.~object\b(?!~\()"),
}
# `from unittest.mock import patch as replaced`
_IMPORTED_AS = {
    word: tokens(rb"%b(?<!\w%b)[\s\\]++as[\s\\]++(\w++)" % (word, word))
    for word in (b"patch", b"mock", b"setattr", b"partial")
}
_NAME_OF = tokens(rb"(\w++)~=(?!=)~[\w.(\s\\]*+$")
# But `del model, config`, which ends with its line: a name is no attribute.
_DELETION = re.compile(
    rb"del(?<!\wdel)(?![ \t]++\w++(?:[ \t]*+,[ \t]*+\w++)*+[ \t]*+[\n;#])[\s\\(]++(?!self\b)[^\n=]{1,200}+"
)
_IMPORT = re.compile(
    rb"\n[ \t]*+(?:from[ \t]++([\w.]++)[ \t]++import\b[ \t]*+(\([^)]*+|[^\n]*+)|import[ \t]++([\w., \t]++))"
)
_NAME = re.compile(r"(?:^|[,(])\s*+([A-Za-z_]\w*+)")
_STAR = tokens(rb"import~\*")
_FORWARDING = re.compile(rb"^def[ \t]++__getattr__\b", re.MULTILINE)
_IMPORTS_MEGATRON = tokens(rb"\b(?:import|from)\b~megatron\b")
# Packages of which no name is known.
_IN_NO_WHEEL = tokens(rb"megatron(?:~\.~|[\s\\]++import[\s\\(]++)(?:%b)\b" % "|".join(BESIDE).encode())
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
    return set(ANY_WORD.findall(plain(data)))


def mentions_megatron(path: str, data: bytes) -> bool:
    """Whether a file or its path says Megatron."""
    return b"egatron" in data or b"mcore" in data or "megatron" in path or "mcore" in path


def may_install(data: bytes, mocks: bool, is_python: bool = True) -> bool:
    """Whether a file that says Megatron has a statement of a form a patch needs."""
    text = plain(data)
    if b"megatron" in text and _IN_NO_WHEEL.search(text):
        return True
    calls = _has_call(text, mocks, text)
    may = calls or _has_statement(text)
    if not is_python or not may:
        return may
    code = plain(without_texts(data))  # comments and docstrings speak of patches too
    return (
        (calls and _has_call(text, mocks, code))
        or _has_statement(code)
        or (calls and _has_call(text, mocks, plain(telling(data))))
    )


def _has_call(text: bytes, mocks: bool, code: bytes) -> bool:
    """Whether an expression of the code may patch: a call, or the loop of a comprehension."""
    known = known_attributes()
    return (
        calls_matter(text, mocks, code)
        or b"delattr" in code
        or any(match[1] in known for pattern in _TARGETS for match in pattern.finditer(code))
    )


def _has_statement(text: bytes) -> bool:
    """Whether there is a statement that may be one of a patch; none stands within a text."""
    return bool(
        any(Assignments(text).plausible())
        or (b"layers" in text and _LAYER_ASSIGNMENT.search(text))
        or (b"del" in text and _may_delete(text))
    )


def may_take_hook(data: bytes) -> bool:
    """Whether a file may define a model of its own on one of Megatron's: a subclass or a wrapper."""
    return any(word in data for word in _MODELS) and b"class" in data and _METHOD_OF_A_MODEL.search(data) is not None


def imports_megatron(data: bytes) -> bool:
    """Whether a file gets hold of Megatron itself: by an import statement, or by name."""
    return b"megatron" in data and bool(_IMPORTS_MEGATRON.search(data) or _ROOT.search(data))


def calls_matter(data: bytes, mocks: bool, code: bytes | None = None) -> bool:
    """Whether calls of a file have to be looked into, not only assignments; `code` is what is no text of it."""
    code = data if code is None else code
    if (
        any(word in code for word in _NAMESPACES)
        or any(_places(_FINDERS, _FINDERS, code))
        or (b"vars" in code and _VARS.search(code))
        or any(word in code for word in _CHILD_SETTERS)  # m.add_module("output_layer", x)
        or (b"_modules" in code and _CHILDREN.search(code))
        or (b"modules" in code and any(pattern.search(code) for pattern in _SYS_MODULES))
        or next(_runs_text(code), None) is not None
    ):
        return True
    if b"megatron" in data and (
        STRING_TARGETS.search(data)
        or SOURCE_FILES.search(data)
        or (any(word in code for word in _BY_NAME) and _ROOT.search(data))
    ):
        return True
    if b"setattr" in code and _may_setattr(data, mocks):
        return True
    if mocks and b"patch" in code and any(word in code for word in _MOCKS):
        return True
    verbs = [verb for verb in _PATCH_VERBS if verb in code]
    return b"megatron" in data and any(_places(verbs, _PATCH_CALLS, data))


def call_lines(data: bytes) -> list[int]:
    """The lines on which a call that may install a patch can begin or end, and those where `:=` binds a name."""
    data = plain(data)
    starts = {match.start() for match in re.finditer(b":=", data)} if b":=" in data else set()
    if calls_matter(data, True) or b"delattr" in data:
        starts |= _call_starts(data)
    lines: list[int] = []
    position, line = 0, 1
    for start in sorted(starts):
        line += data.count(b"\n", position, start)
        position = start
        if not lines or lines[-1] != line:
            lines.append(line)
    return lines


def _call_starts(data: bytes) -> set[int]:
    patterns = [tokens(rb"%b(?<!\w%b)~[.(]" % (name, name)) for name in sorted(_aliases(data))]
    patterns += [STRING_TARGETS] if b"megatron" in data else []
    starts = {match.start() for pattern in patterns for match in pattern.finditer(data)}
    starts |= {match.start() for match in _places(_PATCH_VERBS, _PATCH_CALLS, data)}
    starts.update(_runs_text(data))
    starts |= {match.start() for word in _CALL_WORDS if word in data for match in re.finditer(word, data)}
    return starts


def _runs_text(data: bytes) -> Iterator[int]:
    """Where `exec` or `eval` is called, and no method of that name."""
    for pattern in _EXECS:
        for match in pattern.finditer(data):
            before = data[max(0, match.start() - 1) : match.start()]
            if not before.isalnum() and before not in (b".", b"_"):
                yield match.start()


def _aliases(data: bytes) -> set[bytes]:
    """The names that something goes by which writes attributes."""
    aliases = {match[1] for match in _places(_IMPORTED_AS, _IMPORTED_AS, data)}
    for match in _places(_NAMED_WORDS, _NAMED, data):
        before = data[max(0, match.start() - LOOK_BACK) : match.start()]
        if b"=" in before and (name := _NAME_OF.search(before)):
            aliases.add(name[1])
    return aliases


def _places(words: Iterable[bytes], patterns: dict[bytes, re.Pattern[bytes]], data: bytes) -> Iterator[re.Match[bytes]]:
    """What the patterns of some words find, each looked for where a file has its word."""
    return (match for word in words if word in data for match in patterns[word].finditer(data))


def installers(data: bytes) -> frozenset[str]:
    """The functions and classes of a file that set what they are given: by a computed name, a class, a method."""
    patterns = [pattern for word, sign, pattern in _GIVES if word in data and sign.search(data)]
    places = [(match[1], match.start()) for pattern in patterns for match in pattern.finditer(data)]
    places += Assignments(data).of_methods()
    definitions = list(_DEFINITION.finditer(data)) if places else []
    names: set[bytes] = set()
    for _ in range(_LEVELS if places else 0):
        new = {name for path, start in places for name in _given_to(path, data, start, definitions)} - names
        if not new:
            break
        names |= new
        calls = re.finditer(rb"\b(?:%b)\(\s*+(\w++)" % b"|".join(sorted(new)), data)
        places = [(match[1], match.start()) for match in calls]
    found = {one[2] or one[3] for one in definitions if (one[2] or one[3]) in names and not _is_inner(one)}
    return frozenset(map(bytes.decode, found))


def _is_inner(definition: re.Match[bytes]) -> bool:
    """Whether a function stands in another, so that no other file can name it."""
    data, end = definition.string, definition.start()
    above = data[data.rfind(b"\n", 0, max(0, end - _FAR_ABOVE)) + 1 : end].splitlines()
    lines = ((line, line.lstrip()) for line in reversed(above))
    outer = (text for line, text in lines if text and len(line) - len(text) < len(definition[1]))
    return next(outer, b"").startswith((b"def ", b"async def "))


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
                if subject in ANY_WORD.findall(parameters):
                    yield function
        if not depth:
            return


def calls_one_of(data: bytes, names: Iterable[str]) -> bool:
    """Whether a file has a call of one of these that gives it something by a name."""
    return any(name in data and tokens(name + rb"~\(~[\w*]").search(data) for name in map(str.encode, names))


def _may_setattr(data: bytes, mocks: bool) -> bool:
    """Whether a `setattr` is not plainly of `self`, or of a mock, or adds to what is neither a class nor imported."""
    known = known_attributes()
    mocked = b"\0" if mocks or _IMPORTED_AS_MOCK.search(data) else _MONKEYPATCH

    def may_be_core(subject: bytes) -> bool:
        is_imported = subject.isalnum() and re.search(rb"\b(?:import|as)\s++" + subject, data)
        return bool(subject.rpartition(b".")[2][:1].isupper() or is_imported)

    harmless: int = sum(
        match[1] == b"self"
        or data.endswith(mocked, 0, match.start())
        or (match[2] is not None and match[2] not in known and not may_be_core(match[1]))
        for match in _SETATTR.finditer(data)
    )
    return data.count(b"setattr") > harmless


def _may_delete(data: bytes) -> bool:
    """`del GPTModel.forward`."""
    known = known_attributes()
    return any(not known.isdisjoint(ANY_WORD.findall(targets)) for targets in _DELETION.findall(data))


def takes_all_names(data: bytes) -> bool:
    """Whether a file has a `from module import *`, or a `__getattr__` of its own."""
    return _STAR.search(data) is not None or _FORWARDING.search(data) is not None


def imported_modules(data: bytes) -> list[str]:
    """Names that may be modules as import statements write them, leading dots included."""
    modules = []
    for match in _IMPORT.finditer(b"\n" + data):
        if match[1]:
            module = match[1].decode()
            modules.append(module)
            prefix = module if module.endswith(".") else f"{module}."
            modules += [prefix + name for name in _NAME.findall(match[2].decode(errors="replace"))]
        else:
            modules += [part.split()[0] for part in match[3].decode().split(",") if part.strip()]
    return modules
