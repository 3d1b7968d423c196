"""What the codemods ask before they rewrite, one question at a time: code in, answer out."""

import ast
from pathlib import Path

import pytest

from mcore_unpatch.codemods.catalogue.value_head import _width
from mcore_unpatch.codemods.dead import _bound
from mcore_unpatch.codemods.imports.leftovers import _quoted
from mcore_unpatch.codemods.registry import GROUP, _may_announce
from mcore_unpatch.codemods.seams.patch import defined, function_name
from mcore_unpatch.codemods.standing import processors
from mcore_unpatch.editing.source import Function


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


@pytest.mark.parametrize(
    ("text", "name", "is_bound"),
    [
        ("f", "f", False),
        ("f.__get__(x)", "f", True),
        ("a.f.__get__(x)", "", False),
        ("types.MethodType(f, x)", "f", True),
        ("MethodType(f, x)", "f", True),
        ("MethodType(f)", "f", True),
        ("MethodType(a.f, x)", "", False),
        ("MethodType()", "", False),
        ("MethodType(f, obj=x)", "f", True),
        ("other(f, x)", "", False),
        ("a.f", "", False),
        ("f.other(x)", "", False),
    ],
)
def test_the_function_in_what_is_assigned(text: str, name: str, is_bound: bool) -> None:
    assert function_name(expression(text)) == (name, is_bound)


def test_the_only_function_of_a_name() -> None:
    tree = ast.parse("def a(): ...\ndef b(): ...\ndef b(): ...\ndef c():\n    if x:\n        def a(): ...\n")
    around = tree.body[-1]
    assert isinstance(around, Function)
    inner = around.body[0].body[0]  # type: ignore[attr-defined]
    assert defined(tree, "a", None) is tree.body[0]
    assert defined(tree, "a", around) is inner
    assert [defined(tree, name, around) for name in ("b", "c", "none")] == [None] * 3  # two, itself, none


CLASSES = """\
class Plain(Base):
    def __init__(self, config, size=7, *, output_size=9): ...
class Wide(Base):
    def __init__(self, config):
        super().__init__(config.hidden_size, 1)
class Two(Base):
    def __init__(self):
        super().__init__(4, 1)
        super().__init__(4, 2)
"""


@pytest.mark.parametrize(
    ("call", "width"),
    [
        ("Linear(8, 1)", "1"),
        ("Linear(8, out_features=n)", "n"),
        ("Linear(8)", None),
        ("Linear(*sizes)", None),
        ("Plain(config)", None),
        ("Plain(config, output_size=2)", "2"),
        ("Wide(config)", None),
        ("Two()", None),
    ],
)
def test_the_width_of_a_head(call: str, width: str | None) -> None:
    value = expression(call)
    assert isinstance(value, ast.Call)
    found = _width(value, ast.parse(CLASSES))
    assert (found and ast.unparse(found)) == width


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Model", {"Model"}),
        ("class", set()),
        ("a.Model | None", {"a"}),
        ("list[Model]", {"list", "Model"}),
        ("two words", set()),
        ("x" * 200, {"x" * 200}),
        ("x" * 201, set()),
        ("a-b", set()),
        ("1", set()),
    ],
)
def test_names_in_a_string(text: str, names: set[str]) -> None:
    assert _quoted(text) == names


@pytest.mark.parametrize(
    ("text", "inside", "beside"),
    [
        ("def f(): ...", "f", "f"),
        ("@wrapped\ndef f(): ...", None, None),
        ("x = 1", "x", None),
        ("x = install()", None, None),
        ("x = y = 1", None, None),
        ("a.x = 1", None, None),
        ("class C: ...", None, None),
    ],
)
def test_what_costs_nothing_when_it_goes(text: str, inside: str | None, beside: str | None) -> None:
    statement = ast.parse(text).body[0]
    assert (_bound(statement, True), _bound(statement, False)) == (inside, beside)


def test_whether_a_folder_may_announce_codemods(tmp_path: Path) -> None:
    assert not _may_announce(str(tmp_path))
    for folder in ("a.dist-info", "b.txt"):
        (tmp_path / folder).mkdir()
    (tmp_path / "a.dist-info" / "entry_points.txt").write_text("[console_scripts]\n")
    (tmp_path / "b.txt" / "entry_points.txt").write_text(f"[{GROUP}]\n")
    assert not _may_announce(str(tmp_path))
    (tmp_path / "c.egg-info").mkdir()
    (tmp_path / "c.egg-info" / "entry_points.txt").write_text(f"[{GROUP}]\n")
    assert _may_announce(str(tmp_path))
    (tmp_path / "code.zip").write_bytes(b"")
    assert _may_announce(str(tmp_path / "code.zip"))
    assert not _may_announce(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("model(x, output_processor=run)", ["run"]),
        ("model(x, output_processor=None)", []),
        ("model(x, output_processor=output_processor)", []),
        ("model(x, other=run)", []),
        ("kwargs = {'output_processor': run, 'other': 1, **more}", ["run"]),
        ("kwargs['output_processor'] = run", ["run"]),
        ("kwargs['other'] = run", []),
        ("output_processor = run", []),
    ],
)
def test_what_is_given_as_a_processor(text: str, given: list[str]) -> None:
    assert [ast.unparse(value) for value in processors(ast.parse(text))] == given
