"""What codemods ask of syntax trees, question by question."""

import ast

import pytest

from mcore_unpatch.codemods import syntax
from mcore_unpatch.codemods.standing import HOOK, RemainingPatches
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import Finding

PURE = (
    "parse Version version get_version signature hasattr getattr callable isinstance issubclass int str tuple map split"
    " startswith is_mcore_min_version find_spec len import_module"
)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize("name", PURE.split())
def test_nobody_misses_a_question(name: str) -> None:
    assert syntax.is_pure(expression(f"a.{name}(b)"))
    assert syntax.is_pure(expression(f"{name}(b)[0] < (0, 18)"))


@pytest.mark.parametrize(
    ("text", "pure"),
    [
        ("a and b.c[0]", True),
        ("install()", False),
        ("len(install())", False),
        ("(x := 1)", False),
        ("lambda: 1", False),
        ("(yield)", False),
        ("(yield from a)", False),
        ("settings.get('name', 1)", True),
        ("settings.get('https://x')", False),
        ("settings.get(1)", False),
        ("settings.get()", False),
        ("settings.take('name')", False),
    ],
)
def test_what_may_go_with_its_answer(text: str, pure: bool) -> None:
    assert syntax.is_pure(expression(text)) is pure


@pytest.mark.parametrize(
    ("text", "leaf"), [("a.b.c", "c"), ("f().c", "c"), ("a", "a"), ("f()", ""), ("a[0]", ""), ("'a'", "")]
)
def test_the_last_part_of_a_name(text: str, leaf: str) -> None:
    assert syntax.leaf(expression(text)) == leaf


def test_names_and_values() -> None:
    assert syntax.is_value(expression("None"), None)
    assert not syntax.is_value(expression("0"), False)
    assert not syntax.is_value(expression("a"), None)
    assert not syntax.is_value(None, None)
    read, stored = expression("a"), ast.parse("a = 1").body[0].targets[0]  # type: ignore[attr-defined]
    assert [syntax.is_stored(node, name) for node in (read, stored) for name in "ab"] == [False, False, True, False]
    assert [syntax.is_name(read, name) for name in "ab"] == [True, False]


def test_functions() -> None:
    text = 'async def f(a, /, b, *c, d, **e):\n    "doc"\n    x\n    def g():\n        y\n    class C:\n        z\n'
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.AsyncFunctionDef)
    assert syntax.parameters(function) == ["a", "b", "d"]
    assert ast.unparse(syntax.body_of(function)[0]) == "x"
    plain = ast.parse("def f():\n    return 1\n").body[0]
    assert isinstance(plain, ast.FunctionDef)
    assert syntax.body_of(plain) == plain.body


def test_every_name_that_code_binds() -> None:
    text = (
        "import a.b, c as d\nfrom e import f\ndef g(h, *i):\n    global j\nclass k:\n    pass\n"
        "try:\n    l\nexcept m as n:\n    pass\nmatch o:\n    case p:\n        pass\n"
    )
    assert syntax.identifiers(ast.parse(text)) - {""} == set("adfghijklmnop")


@pytest.mark.parametrize(
    ("head", "call", "there"),
    [
        ("import a.b", "a.b.f()", True),
        ("import a.b as c", "c.f()", True),
        ("from a import b", "b.f()", True),
        ("from a.b import f", "f()", True),
        ("from a.b import f as g", "g()", True),
        ("from a.b import f as g", "f()", False),
        ("from .b import f", "f()", True),
        ("from . import b", "b.f()", True),
        ("from ..b import f", "f()", False),
        ("import b", "b.f()", False),
        ("", "a.b.f()", False),
    ],
)
def test_calls_by_their_whole_name(head: str, call: str, there: bool) -> None:
    source = Source("a/m.py", f"{head}\n{call}\n".encode())
    assert [ast.unparse(node) for node in syntax.calls_of(source, "a.b.f")] == ([call] if there else [])


GPT = "megatron.core.models.gpt.gpt_model.GPTModel"


@pytest.mark.parametrize(
    ("shape", "in_test", "path", "blocks"),
    [
        ("class-attr", False, "other.py", True),
        ("class-attr", True, "other.py", False),
        ("class-attr", True, "here.py", True),
        ("instance-attr", False, "other.py", False),
        ("instance-attr", False, "here.py", True),
        ("submodule", False, "other.py", False),
        ("mock", False, "here.py", False),
        ("patch-file", False, "here.py", False),
    ],
)
def test_which_patch_keeps_the_hook_from_code(shape: str, in_test: bool, path: str, blocks: bool) -> None:
    owner, name = sorted(HOOK)[0]
    finding = Finding("MCU101", path, 3, 1, 3, f"{owner}.{name}", shape, "why", in_test=in_test)
    other = Finding("MCU101", path, 4, 1, 4, f"{GPT}.set_input_tensor", shape, "why")
    left = RemainingPatches.of([other, finding], [])
    short = f"{owner.rpartition('.')[2]}.{name}"
    told = f"`{short}` stays patched in {path}, line 3, and the hook goes through it: move that patch first"
    assert left.in_the_way("here.py") == (told if blocks else "")
    assert RemainingPatches.of([other, finding], [finding]).in_the_way("here.py") == ""
