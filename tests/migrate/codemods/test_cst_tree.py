"""Changes on nodes of libcst: what is left alone, what goes with a statement, and that edits are what the nodes say."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from mcore_unpatch.codemods.changes import (
    AddParameters,
    Argument,
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
from mcore_unpatch.codemods.cst_tree import Tree, Unfaithful
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.editing.edits import splice
from mcore_unpatch.editing.source import Source

WHY = Reason("MCU101", "safe", "a test")


def made(source: Source, *changes: Change) -> str:
    """The file with changes made, by the nodes and by the bytes of each edit."""
    tree, asked = Tree(source), [Asked(source, change, WHY) for change in changes]
    assert Tree(source, asked).made(asked) == tree.made(asked), "the statements that change are enough"
    new = tree.made(asked)
    assert splice(source.data, tree.edits(asked)) == new
    return new.decode()


def read(text: str) -> Source:
    return Source("m.py", dedent(text).lstrip("\n").encode())


@pytest.mark.parametrize("data", [b"x = 1\ry = 2\r", b"x = 1\n\x0cy = 2\n"], ids=["CR", "form feed"])
def test_a_file_that_libcst_does_not_give_back_is_left(data: bytes) -> None:
    with pytest.raises(Unfaithful, match="does not give its bytes back"):
        Tree(Source("m.py", data))


def test_an_argument_comes_behind_the_last() -> None:
    source = read("f(\n    a,  # why\n)\n")
    call = source.every(ast.Call)[0]
    assert made(source, Argument(call, "b=True")) == "f(\n    a, b=True,  # why\n)\n"


@pytest.mark.parametrize("comma", [",", ""])
def test_an_argument_stands_on_a_line_of_its_own_where_the_others_do(comma: str) -> None:
    source = read(f"f(\n    a,  # why\n    b{comma}\n)\n")
    call = source.every(ast.Call)[0]
    assert made(source, Argument(call, "c=1")) == f"f(\n    a,  # why\n    b,\n    c=1{comma}\n)\n"


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
        ("if a:\n    b = 1\n# why\nelse:\n    gone = 2\nc = 3\n", "if a:\n    b = 1\n    # why\nc = 3\n"),
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
    with pytest.raises(Unfaithful, match="line 1 holds more than one statement"):
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


def test_what_fits_only_together_is_one_edit_with_all_its_notes() -> None:
    """Both statements of a body go, and `pass` comes: that is neither change alone; the rest stays apart."""
    source = read("def f():\n    a()\n    b()\n\n\nx = y\n")
    function, assign = source.tree.body
    assert isinstance(function, ast.FunctionDef) and isinstance(assign, ast.Assign)
    whys = [Reason("MCU101", "unsafe", "a test", (note,)) for note in ("one", "two")]
    bodies = zip(function.body, whys, strict=True)
    asked = [Asked(source, change, why) for one, why in bodies for change in remove(source, [one])]
    edits = Tree(source).edits([*asked, Asked(source, Replace(assign.value, "z"), WHY)])
    assert splice(source.data, edits) == b"def f():\n    pass\n\n\nx = z\n"
    assert [(edit.applicability, edit.notes) for edit in edits] == [("unsafe", ("one", "two")), ("safe", ())]


def test_only_statements_that_change_are_parsed() -> None:
    """What libcst would not give back, or not in this life, stands in the others."""
    numbers = ", ".join(map(str, range(2000)))
    text = f"import a\nWIDE = [{numbers}]\n# of f\ndef f():\n    return 1\n\n"
    text += "\nclass C:\n    x = 1; y = 2\n    # end\nb = 3\n"
    source = Source("m.py", text.encode())
    asked = [Asked(source, Replace(source.tree.body[2].body[0].value, "2"), WHY)]
    tree = Tree(source, asked)
    assert len(tree.excerpt.data) < len(text) / 10
    assert tree.excerpt.data.count(b"\n") == text.count("\n")
    assert tree.made(asked).decode() == text.replace("return 1", "return 2")


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


def test_what_is_parsed_of_any_statement_is_enough() -> None:
    """Wherever the one that changes stands, and whether or not its own suites change too."""
    source = read(EVERY_SUITE)
    nodes = [node for node in source.every(ast.stmt) if source.owns_lines(node) and source.text(node)[:4] != "elif"]
    assert len(nodes) > 20
    for node in nodes:
        made(source, Rewrite(node, "changed()"))
        made(source, *remove(source, [node]), above(source, source.tree.body[-1], "# new"))
    for node in source.every(ast.If, ast.Try):
        if node in nodes:
            made(source, Unwrap(node, "body"))
    assert all(not Tree(source, asked(source, node)).excerpt.data.count(b"= 1") for node in source.tree.body[-1:])


def asked(source: Source, *nodes: ast.stmt) -> list[Asked]:
    return [Asked(source, Rewrite(node, "changed()"), WHY) for node in nodes]


def test_an_excerpt_knows_what_it_does_not_hold() -> None:
    source = read(EVERY_SUITE)
    cls, last = source.tree.body[1:]
    assert isinstance(cls, ast.ClassDef)
    excerpt = Tree(source, asked(source, cls)).excerpt
    assert excerpt.holds(asked(source, cls))
    assert not excerpt.holds(asked(source, last))
    assert not excerpt.holds(asked(source, cls.body[-1]))
    make = Make(cls, lambda node: node)
    assert not excerpt.holds([Asked(source, make, WHY)])
    assert Tree(source, [Asked(source, make, WHY)]).excerpt.holds(asked(source, cls.body[-1]))


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
