"""Changes of nodes as edits of bytes: what is left alone, and what goes with a statement."""

from __future__ import annotations

import ast
from textwrap import dedent
from typing import Literal

import libcst as cst
import pytest

from mcore_unpatch.codemods import making
from mcore_unpatch.codemods.changes import (
    AddArguments,
    AddParameters,
    Asked,
    Change,
    Insert,
    Make,
    Reason,
    Replace,
    Rewrite,
    Unwrap,
    above,
)
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import Repository, Unsound, splice
from mcore_unpatch.editing.source import Source

WHY = Reason("MCU101", "exact", "a test")


def made(source: Source, *changes: Change) -> str:
    """The file with changes made."""
    return making.made(source, [Asked(source, change, WHY) for change in changes]).decode()


def read(text: str) -> Source:
    return Source("m.py", dedent(text).lstrip("\n").encode())


@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n\x0c"], ids=["CR", "CRLF", "form feed"])
def test_whatever_ends_lines_stays(end: bytes) -> None:
    source = Source("m.py", b"x = a" + end + b"y = f(1)" + end + b"z = 3\n")
    first, _, third = source.tree.body
    call = source.every(ast.Call)[0]
    new = made(source, Rewrite(first, "x = b"), AddArguments(call, ("2",)), *remove(source, [third])).encode()
    assert new == b"x = b" + end + b"y = f(1, 2)" + end.removesuffix(b"\x0c")


@pytest.mark.parametrize(("one", "other"), [(b"\n", b"\r"), (b"\r", b"\n"), (b"\r\n", b"\r"), (b"\n", b"\r\n")])
def test_lines_that_end_in_different_ways(one: bytes, other: bytes) -> None:
    """What comes in their place ends as the file's first line does; all else stays."""
    source = Source("m.py", one.join([b"x = 1", b"if x:", other.join([b"    a = 2", b"    b = 3"]), b"c = 4", b""]))
    branch = source.every(ast.If)[0]
    new = made(source, Unwrap(branch, "body"), Rewrite(branch.body[1], other.decode().join(["y(", "    3", ")"])))
    assert new.encode() == one.join([b"x = 1", b"a = 2", b"y(", b"    3", b")", b"c = 4", b""])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a=1, **(c or {}))", "f(a=1, b=2, **(c or {}))"),
        ("f(\n    x,\n    a=1,\n    **c,\n)", "f(\n    x,\n    a=1,\n    b=2,\n    **c,\n)"),
        ("f(**c, a=1)", "f(**c, a=1, b=2)"),
        ("f(**c)", "f(**c, b=2)"),
        ("f(*a, **c)", "f(*a, b=2, **c)"),
    ],
)
def test_an_argument_comes_before_a_dict_of_others(before: str, after: str) -> None:
    source = read(f"{before}\n")
    assert made(source, AddArguments(source.every(ast.Call)[0], ("b=2",))) == f"{after}\n"


def test_an_argument_comes_behind_the_last() -> None:
    source = read("f(\n    a,  # why\n)\n")
    call = source.every(ast.Call)[0]
    assert made(source, AddArguments(call, ("b=True",))) == "f(\n    a, b=True,  # why\n)\n"


LONG = f"output_{'x' * 30}=None"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"y = f(a, b[1, 2], c={'c' * 25})", f"y = f(\n  a, b[1, 2], c={'c' * 25}, {LONG}\n)"),
        (f"y = f(a, *b, c={'c' * 70})", f"y = f(\n  a,\n  *b,\n  c={'c' * 70},\n  {LONG},\n)"),
        (f"y = f(a, c={'c' * 70})  # type: ignore", f"y = f(a, c={'c' * 70}, {LONG})  # type: ignore"),
    ],
)
def test_what_would_be_too_long_stands_in_rows(before: str, after: str) -> None:
    source = read(f"def g():\n  {before}\n")
    expected = "def g():\n  " + after.replace("\n", "\n  ") + "\n"
    assert made(source, AddArguments(source.every(ast.Call)[0], (LONG,))) == expected
    header = read(f"def f(a, *, b={'b' * 60}, **kwargs) -> int:\n  pass\n")
    new = made(header, AddParameters(header.tree.body[0], (LONG,)))  # type: ignore[arg-type]
    assert new == f"def f(\n  a,\n  *,\n  b={'b' * 60},\n  {LONG},\n  **kwargs,\n) -> int:\n  pass\n"


@pytest.mark.parametrize("comma", [",", ""])
def test_an_argument_stands_on_a_line_of_its_own_where_the_others_do(comma: str) -> None:
    source = read(f"f(\n    a,  # why\n    b{comma}\n)\n")
    call = source.every(ast.Call)[0]
    assert made(source, AddArguments(call, ("c=1",))) == f"f(\n    a,  # why\n    b,\n    c=1{comma}\n)\n"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("a, b=1", "a, b=1, c=None"),
        ("a, *, b", "a, *, b, c=None"),
        ("a, *rest", "a, *rest, c=None"),
        ("a, **rest", "a, c=None, **rest"),
        ("\n    a,\n    b=1,\n", "\n    a,\n    b=1,\n    c=None,\n"),
        ("\n    a,  # the model\n    b=1\n", "\n    a,  # the model\n    b=1,\n    c=None\n"),
    ],
)
def test_a_parameter_is_laid_out_as_the_others(header: str, expected: str) -> None:
    source = read(f"def f({header}):\n    pass\n")
    function = source.every(ast.FunctionDef)[0]
    assert made(source, AddParameters(function, ("c=None",))) == f"def f({expected}):\n    pass\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1\n\n\ngone = 2\n\n\nb = 3\n", "a = 1\n\n\nb = 3\n"),
        ("a = 1\n\ngone = 2\ngone = 3\n\nb = 4\n", "a = 1\n\nb = 4\n"),
        ("a = 1\ngone = 2\n\ngone = 3\nb = 4\n", "a = 1\n\nb = 4\n"),
        ("a = 1\n\n# of it\ngone = 2\n\nb = 3\n", "a = 1\n\nb = 3\n"),
        ("# of both\ngone = 1\nb = 2\n", "# of both\nb = 2\n"),
        ("a = 1\n# apart\n\n# of it\ngone = 2\n", "a = 1\n# apart\n"),
        ("def f():\n    gone = 1\n\n    b = 2\n", "def f():\n    b = 2\n"),
        ("def f():\n    a = 1\n\n    gone = 2\n    # the end\n", "def f():\n    a = 1\n    # the end\n"),
        ("def f():\n    gone = 1\n", "def f():\n    pass\n"),
        ("if a:\n    gone = 1\nb = 2\n", "b = 2\n"),
        ("if f():\n    gone = 1\n", "if f():\n    pass\n"),
        ("if a:\n    b = 1\n# why\nelse:\n    gone = 2\nc = 3\n", "if a:\n    b = 1\n# why\nc = 3\n"),
        ("if a: gone = 1\n", ""),
        ("if a: b = 1\nelse:\n    gone = 2\nc = 3\n", "if a: b = 1\nc = 3\n"),
        ("a = 1\ngone = 2", "a = 1"),
        ("a = 1\ngone = 2\ngone = 3", "a = 1"),
        ("\ufeffgone = 1\n\nb = 2\n", "\ufeffb = 2\n"),
        ("a = 1\r\ngone = 2\r\n\r\nb = 3\r\n", "a = 1\r\n\r\nb = 3\r\n"),
    ],
)
def test_what_goes_with_a_statement(text: str, expected: str) -> None:
    source = Source("m.py", text.encode())
    gone = [one for one in source.every(ast.Assign) if one.targets[0].id == "gone"]  # type: ignore[attr-defined]
    assert made(source, *remove(source, gone)) == expected


def test_a_line_of_several_statements_is_left_and_says_so() -> None:
    source = read("a = 1; gone = 2; b = 3\n")
    with pytest.raises(Unsound, match="line 1 holds more than one statement"):
        made(source, *remove(source, [source.tree.body[1]]))


def test_changes_of_one_line_and_of_nested_nodes_fit_together() -> None:
    source = read('if on:\n    x = "ä" + f(a.b, g(a.b))  # why\n')
    names = source.every(ast.Attribute)
    [assign] = source.every(ast.Assign)
    comment = Insert(assign, 2, "# above")
    assert made(source, *(Replace(node, "c") for node in names), comment) == (
        'if on:\n    # above\n    x = "ä" + f(c, g(c))  # why\n'
    )


def test_brackets_of_a_replaced_expression_stay() -> None:
    source = read("x = (a.b)\ny = (1, 2)\n")
    assert made(source, Replace(source.every(ast.Attribute)[0], "c"), Replace(source.every(ast.Tuple)[0], "3, 4")) == (
        "x = (c)\ny = (3, 4)\n"
    )


def test_a_comment_behind_a_rewritten_statement_stays_unless_it_speaks_to_a_checker_that_is_not_to_be_told() -> None:
    source = read("a.b = c  # type: ignore\nd.e = f  # for people\n")
    first, second = source.tree.body
    assert made(source, Rewrite(first, "x()"), Rewrite(second, "y()", tell_checkers=False)) == (
        "x()  # type: ignore\ny()  # for people\n"
    )
    assert made(source, Rewrite(first, "x()", tell_checkers=False)) == "x()\nd.e = f  # for people\n"


def test_a_body_that_loses_its_statements_for_several_reasons_holds_pass() -> None:
    source = read("def f():\n    a()\n    b()\n\n\nx = y\n")
    function, assign = source.tree.body
    assert isinstance(function, ast.FunctionDef) and isinstance(assign, ast.Assign)
    whys = [Reason("MCU101", "behaviour", "a test", (note,)) for note in ("one", "two")]
    bodies = zip(function.body, whys, strict=True)
    asked = [Asked(source, change, why) for one, why in bodies for change in remove(source, [one])]
    edits = making.edits_of(source, [*asked, Asked(source, Replace(assign.value, "z"), WHY)])
    assert splice(source.data, edits) == b"def f():\n    pass\n\n\nx = z\n"
    assert {note for edit in edits for note in edit.notes} == {"one", "two"}


EVERY_SUITE = """
    import a

    @a.b
    class C:
        \'\'\'Of C.\'\'\'
        x = 1; y = 2

        # of f
        @a.c(
            1,
        )
        def f(self, x):
            if x:
                return [
                    1,
                ]
                # deep
            elif self.x:
                y = 1
            elif y: z = 2
            else:
                with x as y:
                    y = 3  # behind
            try:
                x = 4
            except A:
                x = 5
            except B:
                pass
            else:
                x = 6
            finally:
                x = 7
            match x:
                case 1:
                    x = 8
                case _:
                    x = 9
            for z in x:
                while z:
                    z = 10

                # the end
        async def g(self): return 11
    x = f(12)
    """


def test_any_statement_can_be_rewritten_and_can_go() -> None:
    """Wherever it stands, and whatever stands in it: the rest stays Python, and stays."""
    source = read(EVERY_SUITE)
    nodes = [node for node in source.every(ast.stmt) if source.owns_lines(node) and source.text(node)[:4] != "elif"]
    assert len(nodes) > 20
    for node in nodes:
        new = made(source, Rewrite(node, "changed()"))
        assert ast.dump(ast.parse(new)) == ast.dump(_Changed(node).visit(ast.parse(source.data)))
        ast.parse(made(source, *remove(source, [node]), above(source, source.tree.body[-1], "# new")))
    for node in source.every(ast.If, ast.Try):
        if node in nodes:
            ast.parse(made(source, Unwrap(node, "body")))


class _Changed(ast.NodeTransformer):
    """Another statement in the place of one."""

    def __init__(self, node: ast.stmt) -> None:
        self.place = type(node), node.lineno, node.col_offset

    def visit(self, node: ast.AST) -> ast.AST:
        here = type(node), getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        return ast.parse("changed()").body[0] if here == self.place else self.generic_visit(node)


BRANCHES = """\
def h():
    if a:  # gone
        # of x
        x = f(
            1,
        )
        y = '''
as it was
'''

        # end
    # of else
    elif b:
        x = 2
    else:
        x = d  # why
"""
BODY = """\
def h():
    # of x
    x = f(
        1,
    )
    y = '''
as it was
'''

    # end
"""
OTHERWISE = """\
def h():
    if b:
        x = 2
    else:
        x = g()  # why
"""


@pytest.mark.parametrize(("keep", "expected"), [("body", BODY), ("orelse", OTHERWISE)])
def test_a_part_takes_the_place_of_the_whole_with_the_changes_in_it(
    keep: Literal["body", "orelse"], expected: str
) -> None:
    source = Source("m.py", BRANCHES.encode())
    change = Replace(next(one for one in source.every(ast.Name) if one.id == "d"), "g()")
    assert made(source, Unwrap(source.every(ast.If)[0], keep), change) == expected


def test_a_function_of_libcst_nodes_makes_another_of_any_node() -> None:
    source = read("""
        class C:
            @a
            def f(self):
                x = 1
                return y(2)
        """)
    [function] = source.every(ast.FunctionDef)
    changes = [
        Make(function, lambda node: node.with_changes(decorators=[])),
        Make(function.body[0], lambda node: node.with_changes(value=cst.Integer("3"))),
        Make(source.every(ast.Call)[0], lambda node: node.with_changes(args=[])),
    ]
    assert made(source, *changes) == "class C:\n    def f(self):\n        x = 3\n        return y()\n"


def test_names_of_an_import_of_several_lines_in_a_function_keep_their_indentation() -> None:
    source = read("""
        def f():
            from a import (
                b,
                c,
                d,
            )
        """)
    bench = Workbench(Repository(["m.py"], {"m.py"}.__contains__, {"m.py": source.data}.__getitem__))
    bench.imports("m.py").drop(bench.source("m.py").every(ast.ImportFrom)[0], {"c"}, WHY)
    new = making.made(bench.source("m.py"), bench.import_changes())
    assert new == source.data.replace(b"        c,\n", b"")


def test_indented_comments_that_end_a_file_stay() -> None:
    """They belong to a statement that nothing changes."""
    source = read("""
        a = f()


        def last():
            return 1

            # said below
            # its end
        """)
    call = source.every(ast.Call)[0]
    assert made(source, Replace(call, "g()")) == source.data.decode().replace("f()", "g()")
