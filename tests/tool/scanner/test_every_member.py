"""Every member of every set of names the scanner knows, and every branch of its patterns, has a case that needs it.

The sets are looked for in the scanner's own source. One by one their members are taken out, and the case written for
the set must then give something else: a member that is added without a case that needs it fails here.
"""

import ast
import importlib
import pkgutil
import re
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checking import found_in, with_mocks
from scanner.every_member import CASES, EXAMPLES, HEAD, OTHER, SHORT_HEAD

from mcore_unpatch import scanner
from mcore_unpatch.judge import answer, hook_takers, traits
from mcore_unpatch.survey import detect, parallel, patch_files

MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(scanner.__path__, f"{scanner.__name__}.")
    if not found.ispkg
] + [answer, hook_takers, traits, detect, parallel, patch_files]  # which stand on the scanner
Member = tuple[str, str]  # where the set stands and one of its members


def members() -> Iterator[Member]:
    for module in MODULES:
        name = module.__name__.rpartition(".")[2]
        tree = ast.parse(Path(str(module.__file__)).read_text())
        for where, words in _displays(tree):
            for word in sorted(words):
                yield f"{name}.{where}", word
        imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
        for where, value in vars(module).items():
            if where in imported:
                continue
            if isinstance(value, tuple) and all(isinstance(item, bytes | re.Pattern) for item in value):
                yield from ((f"{name}.{where}", _key(item)) for item in value)
            if isinstance(value, re.Pattern) and isinstance(value.pattern, str) and "|" in value.pattern:
                if len(branches := _branches(value.pattern)) > 1:
                    yield from ((f"{name}.{where}", branch) for branch in branches)


def test_no_member_is_gone() -> None:
    """What the scanner knows is a promise: a name that goes is taken out of `members.txt` too, wherever it stood."""
    known = (Path(__file__).parent / "members.txt").read_text().split()
    assert sorted((Counter(known) - Counter(word for _, word in set(members()))).elements()) == []


def _key(item: bytes | re.Pattern[bytes]) -> str:
    """A word, or a pattern."""
    return (item if isinstance(item, bytes) else item.pattern).decode()


def _displays(tree: ast.Module) -> Iterator[tuple[str, frozenset[str]]]:
    """Sets of words in a module: (name of the constant or of the function, the words)."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.FunctionDef):
            returned = [node.value for node in ast.walk(statement) if isinstance(node, ast.Return)]
            found = [_words(node) for node in ast.walk(statement) if node not in returned]
            yield from ((statement.name, words) for words in found if words)
        elif isinstance(statement, ast.Assign) and statement in tree.body and (words := _words(statement.value)):
            yield ast.unparse(statement.targets[0]), words


def _words(node: ast.AST) -> frozenset[str]:
    elements = node.elts if isinstance(node, ast.Set | ast.Tuple) else []
    words = [item.value for item in elements if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return frozenset(words) if len(words) == len(elements) > 1 else frozenset()


def _branches(pattern: str) -> list[str]:
    """The alternatives of a pattern at its top level."""
    found, depth = [""], 0
    for character in pattern:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and not depth:
            found.append("")
        else:
            found[-1] += character
    return found


@pytest.mark.parametrize("member", sorted(set(members())), ids=lambda member: "-".join(member))
def test_taken_out(member: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    where, word = member
    sources = [text for name, text in _cases(where, word) if name]
    assert sources, f"write a case for {where} that needs {word!r}"
    before = [_found(source) for source in sources]
    _take_out(where, word, monkeypatch)
    assert [_found(source) for source in sources] != before, f"no case needs {word!r} in {where}"


def _cases(where: str, word: str) -> Iterator[tuple[str, str]]:
    for name, case in CASES.items():
        if name.partition("#")[0] == where:
            if isinstance(case, str):
                yield name, case.replace("{}", EXAMPLES.get(word, word))
            elif word in case:
                yield name, case[word]


def _found(source: str) -> list[Any]:
    head = {"#!": SHORT_HEAD, "##": "import other\n"}.get(source[:2], HEAD)
    files = {"a.py": f"{head}{source.removeprefix('#!').removeprefix('##')}\n", "other.py": OTHER}
    return [finding.to_json() for finding in found_in(files, possible=True, **with_mocks())]


def _take_out(where: str, word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, leaf = where.partition(".")
    module = next(module for module in MODULES if module.__name__.endswith(f".{name}"))
    value: Any = getattr(module, leaf, None)
    if isinstance(value, re.Pattern):
        rest: Any = re.compile("|".join(branch for branch in _branches(value.pattern) if branch != word), value.flags)
    elif isinstance(value, set | frozenset | tuple):
        gone = {item for item in value if word in (item, _key(item) if not isinstance(item, str) else "")}
        rest = type(value)(item for item in value if item not in gone)
    else:
        for function in _functions(module, leaf):
            monkeypatch.setattr(function, "__code__", _without(function.__code__, word))
        return
    for holder in MODULES:  # other modules may have imported it
        if vars(holder).get(leaf) is value:
            monkeypatch.setattr(holder, leaf, rest)


def _functions(module: types.ModuleType, name: str) -> Iterator[types.FunctionType]:
    for holder in (module, *(item for item in vars(module).values() if isinstance(item, type))):
        found = vars(holder).get(name)
        found = getattr(found, "func", found)  # a cached property
        if isinstance(found, types.FunctionType) and found.__module__ == module.__name__:
            yield found


def _without(code: types.CodeType, word: str) -> types.CodeType:
    """The code with a word taken out of its constant sets and tuples."""

    def changed(value: object) -> object:
        if isinstance(value, types.CodeType):
            return _without(value, word)
        if isinstance(value, frozenset):
            return frozenset(item for item in value if item != word and not (type(item) is tuple and word in item))
        if isinstance(value, tuple) and word in value and value in tuples:
            return tuple(item for item in value if item != word)
        return value

    tuples = {value for value in code.co_consts if isinstance(value, tuple) and all(isinstance(i, str) for i in value)}
    return code.replace(co_consts=tuple(map(changed, code.co_consts)))


def test_equal_in_a_walk_over_the_modules() -> None:
    loop = "for m in sys.modules.values():\n    if m.g {} megatron.core.utils.get_model_config: m.g = f"
    for operator in ("is", "=="):
        (finding,) = _found(loop.format(operator))
        assert "the comparison in the loop" in finding["message"]
    assert _found(loop.format("is not")) == []


@pytest.mark.parametrize("inner", ["def g(): yield", "async def g(): yield", "class G:\n        x = lambda: (yield)"])
def test_a_generator_within_does_not_make_a_patch_temporary(inner: str) -> None:
    function = "def h():\n    old = GPTModel.forward\n    GPTModel.forward = f\n    {}\n    GPTModel.forward = old"
    (outer,) = _found(function.format(inner))
    (own,) = _found(function.format("yield"))
    assert (outer["temporary"], own["temporary"]) == (False, True)
