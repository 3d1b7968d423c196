"""Decide from bytes alone which files can hold a patch of Megatron Core; only those are parsed."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache

from mcore_unpatch.megatron import api, layout

# No pattern here can take longer than a fixed number of steps for each byte: what may be long is taken at once (`++`)
# or ends after so many bytes. Most begin with literal bytes, and few are joined by `|`: those are searched for fast.
# `.attribute = value`, `.attribute: T = value`, `.attribute, other = ...`; a backslash may end a line in between.
_ASSIGNMENT = re.compile(
    rb"\.([A-Za-z_]\w*+)(?:[ \t]|\\\n)*+([:,][^=\n()]{0,200}+)?=(?!=)(?:[ \t(]|\\\n)*+(?=(\S{0,100}))"
)
_LAYER_ASSIGNMENT = re.compile(rb"\blayers\[[^\]\n]{0,200}+\]\s*+=(?!=)")
_CONSTANT = re.compile(rb"(?:True|False|None)\b|[-0-9\"']|\[\]|\{\}|[fbr]+[\"']")
# `if fast: model.forward = fn` on one line.
_COMPOUND = re.compile(rb"^(?:if|elif|else|for|while|with|try|except|finally|def|class)\b.*:\s+(?=\S)")
_LOOK_BACK = 300
_SETATTR = re.compile(rb"setattr(?:__)?\(\s*+([^\s,()\[\]]{0,200}+)(?:[^,]{0,200}+,\s*+(?:[\"'](\w{1,100}+)[\"'])?)?")
_NAMESPACE_WRITE = re.compile(rb"(?:__dict__|__globals__|vars\([^)\n]{0,200}+\))\s*+(?:\[|\.update|\))")
_MOCKS = (b"monkeypatch", b"mock")
_RESTORES = (b"delattr(", b"callback(setattr")
# A class, or an object and a name of it.
_GIVEN = (
    rb"\(\s*+(?:\w++=)?(?:[\w.\[\]]{1,200}+,\s*+(?:\w++=)?[\"'][\w.]++[\"']|"
    rb"(?:[\w.\[\]]{1,200}+,\s*+)?(?:\w+\.)*[A-Z]\w++[,.)])"
)
_PATCH_CALLS = tuple(
    re.compile(verb + rb"\w{0,100}+" + _GIVEN)
    for verb in (b"patch", b"Patch", b"override", b"swap", b"replace", b"substitute", b"wrap")
)
# A name that is computed, on an object that the function or the class around may be given.
_COMPUTED = re.compile(rb"setattr(?:__)?\(\s*+(?!self,)([\w.]{1,200}+),\s*+(?![\"'])[\w.]{1,200}+")
_OTHER_CLASS = re.compile(rb"\b(\w++)\.__class__[ \t]*+=(?!=)")
_LEVELS = 3  # helpers that call helpers
_NEAREST = 200  # definitions above a place
_DEFINITION = re.compile(
    rb"^([ \t]*+)(?:class[ \t]++(\w++)|(?:async[ \t]++)?def[ \t]++(\w++)([^)]{0,1000}+))", re.MULTILINE
)
STRING_TARGETS = (b'"megatron.core', b"'megatron.core", b'"megatron.training', b"'megatron.training")
_CALLS = (
    *(
        re.compile(word)
        for word in (b"setattr", b"delattr", b"getsource", b"__dict__", rb"vars\(", b"mock", rb"patch\.")
    ),
    *(re.compile(re.escape(word)) for word in STRING_TARGETS),
    re.compile(rb"exec\s*+\("),
    *_PATCH_CALLS,
)
_IMPORT = re.compile(
    rb"\n[ \t]*+(?:from[ \t]++([\w.]++)[ \t]++import\b[ \t]*+(\([^)]*+|[^\n]*+)|import[ \t]++([\w., \t]++))"
)
_IMPORTED = re.compile(rb"\bimport\b([^\n(]*+(?:\([^)]*+)?)")
_WORD = re.compile(rb"\w++")
_NAME = re.compile(r"(?:^|[,(])\s*+([A-Za-z_]\w*+)")
_ON_CLASS = (
    re.compile(rb"\n[ \t]*+[A-Z]\w*+\.\w++[ \t]*+=(?!=)"),
    re.compile(rb"\.[A-Z]\w*+\.\w++[ \t]*+=(?!=)"),
    re.compile(rb"setattr\(\s*+(?:[a-z_]\w*+\.)*+[A-Z]"),
)
_ON_NAME = re.compile(rb"\n[ \t]*+(?!self\.)([a-z_]\w*+)\.(\w++)[ \t]*+=(?!=)")
_SEAM_ATTRIBUTES = frozenset(name.encode() for name in (*layout.SEAM_METHODS, "output_layer", "forward_impl"))
_SEAM_WORDS = (*_SEAM_ATTRIBUTES, b"MethodType(", b"__get__(", b".forward = ")

_MODELS = (b"GPTModel", b"HybridModel", b"MambaModel")
_METHOD_OF_A_MODEL = re.compile(rb"\n[ \t]++(?:async )?+def (?:forward|_postprocess)\(")


def mentions_megatron(path: str, data: bytes) -> bool:
    """Whether a file or its path says Megatron."""
    return b"egatron" in data or b"mcore" in data or "megatron" in path or "mcore" in path


def may_install(data: bytes, mocks: bool) -> bool:
    """Whether a file that says Megatron has a statement of a form a patch needs."""
    return calls_matter(data, mocks) or any(map(_plausible, _ASSIGNMENT.finditer(data))) or _has_layer_assignment(data)


def may_take_hook(data: bytes) -> bool:
    """Whether a file may define a model of its own on one of Megatron's: a subclass or a wrapper."""
    return any(word in data for word in _MODELS) and b"class " in data and _METHOD_OF_A_MODEL.search(data) is not None


def may_install_unsaid(data: bytes) -> bool:
    """The same for a file that does not say Megatron and can only know it through other files: a narrower question."""
    data = b"\n" + data
    if any(pattern.search(data) for pattern in _ON_CLASS) or _on_imported_name(data):
        return True
    return any(word in data for word in _SEAM_WORDS) and any(
        _plausible(match) and (match[1] in _SEAM_ATTRIBUTES or match[1] == b"forward" or b"_" in match[3])
        for match in _ASSIGNMENT.finditer(data)
    )


def _on_imported_name(data: bytes) -> bool:
    """`name.attribute = ...` where an import statement of the file gives `name`."""
    known = _known_attributes()
    names = {name for name, attribute in _ON_NAME.findall(data) if attribute in known}
    return bool(names) and any(not names.isdisjoint(_WORD.findall(line)) for line in _IMPORTED.findall(data))


def calls_matter(data: bytes, mocks: bool) -> bool:
    """Whether calls of a file have to be looked into, not only assignments."""
    if b"sys.modules" in data or b"getsource" in data or any(word in data for word in STRING_TARGETS):
        return True
    if (b"__dict__" in data or b"vars(" in data or b"__globals__" in data) and _NAMESPACE_WRITE.search(data):
        return True
    if b"setattr" in data and any(map(_plausible_setattr, _SETATTR.finditer(data))):
        return True
    if mocks and any(word in data for word in _MOCKS):
        return True
    return b"megatron" in data and any(pattern.search(data) for pattern in _PATCH_CALLS)


def call_lines(data: bytes) -> list[int]:
    """The lines on which a call that may install a patch can begin or end."""
    if not calls_matter(data, True) and not any(word in data for word in _RESTORES):
        return []
    starts = sorted({match.start() for pattern in _CALLS for match in pattern.finditer(data)})
    found: list[int] = []
    position, line = 0, 1
    for start in starts:
        line += data.count(b"\n", position, start)
        position = start
        if not found or found[-1] != line:
            found.append(line)
    return found


def installers(data: bytes) -> frozenset[str]:
    """The functions and classes of a file around a `setattr` whose name is computed, or a new `__class__`."""
    if b"setattr" not in data and b".__class__" not in data:
        return frozenset()
    places = [match for pattern in (_COMPUTED, _OTHER_CLASS) for match in pattern.finditer(data)]
    definitions = list(_DEFINITION.finditer(data)) if places else []
    found: set[bytes] = set()
    for _ in range(_LEVELS if places else 0):
        new = {name for place in places for name in _given_to(place, definitions)} - found
        if not new:
            break
        found |= new
        places = list(re.finditer(rb"\b(?:%b)\(\s*+(\w++)" % b"|".join(sorted(new)), data))
    return frozenset(map(bytes.decode, found))


def _given_to(place: re.Match[bytes], definitions: list[re.Match[bytes]]) -> Iterator[bytes]:
    """The functions around a place that have an object of it as a parameter, the class that keeps it."""
    subject, _, field = place[1].partition(b".")
    depth = place.start() - place.string.rfind(b"\n", 0, place.start())
    above = bisect_left(definitions, place.start(), key=re.Match.start)
    for definition in reversed(definitions[max(0, above - _NEAREST) : above]):
        indent, owner, function, parameters = definition.groups()
        if len(indent) < depth:
            depth = len(indent)
            if owner is not None and field:
                yield owner
            elif function is not None and function[:2] != b"__" and subject in _WORD.findall(parameters):
                yield function
        if not depth:
            return


def calls_one_of(data: bytes, names: Iterable[str]) -> bool:
    """Whether a file has a call of one of these that gives it a class, or an object and a name."""
    return any(name in data and re.search(name + _GIVEN, data) for name in map(str.encode, names))


def _plausible(match: re.Match[bytes]) -> bool:
    attribute, value = match[1], match[3]
    owner = _owner(match)
    if b"=" in owner and match[2] is None:
        owner = owner.rpartition(b"=")[2].lstrip()  # kept = model.forward = fn
    if owner == b"self" or b"=" in owner or b": " in owner:
        return False
    if _CONSTANT.match(value) and not attribute.isupper() and attribute[:2] != b"__":
        # a flag; a module's constants are in capitals
        return False
    if owner.count(b"(") > owner.count(b")"):  # a keyword of a call, no statement
        return False
    if b"MethodType" in value or b"__get__" in value:
        return True
    if owner.endswith((b"config", b"cfg", b"args")) and not owner.startswith(b"megatron."):
        return False
    return attribute in _known_attributes() or owner[:1].isupper()


def _plausible_setattr(match: re.Match[bytes]) -> bool:
    subject, name = match[1], match[2]
    if subject == b"self" or subject.endswith((b"config", b"cfg", b"args", b"param")):
        return False
    return name is None or name in _known_attributes()


def _owner(match: re.Match[bytes]) -> bytes:
    """What stands before the attribute in its statement."""
    data, end = match.string, match.start()
    start = max(0, end - _LOOK_BACK)
    text = data[max(start, data.rfind(b"\n", start, end) + 1) : end].lstrip()
    if b";" in text:
        text = text.rpartition(b";")[2].lstrip()
    return _COMPOUND.sub(b"", text)


def _has_layer_assignment(data: bytes) -> bool:
    return b"layers[" in data and _LAYER_ASSIGNMENT.search(data) is not None


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
