"""A patch is found wherever it stands."""

import textwrap

import pytest
from checking import GPT, check_found

PLACES = {
    "module level": "{patch}",
    "function": "def f():\n    {patch}",
    "async function": "async def f():\n    {patch}",
    "method": "class C:\n    def m(self):\n        {patch}",
    "class method": "class C:\n    @classmethod\n    def m(cls):\n        {patch}",
    "class body": "class C:\n    {patch}",
    "nested closure": "def f():\n    def g():\n        def h():\n            {patch}\n        return h\n    return g",
    "inside a decorator": "def decorate(fn):\n    {patch}\n    return fn\n@decorate\ndef g(): ...",
    "try": "try:\n    {patch}\nexcept AttributeError:\n    pass",
    "except": "try:\n    import missing\nexcept ImportError:\n    {patch}",
    "try else": "try:\n    import missing\nexcept ImportError:\n    pass\nelse:\n    {patch}",
    "finally": "try:\n    pass\nfinally:\n    {patch}",
    "for": "for i in range(2):\n    {patch}",
    "while": "while True:\n    {patch}\n    break",
    "loop else": "for i in range(2):\n    pass\nelse:\n    {patch}",
    "if": "import os\nif os.environ.get('FAST'):\n    {patch}",
    "else": "if 0:\n    pass\nelse:\n    {patch}",
    "main": "if __name__ == '__main__':\n    {patch}",
    "with": "with open('x') as file:\n    {patch}",
    "match": "match 1:\n    case 1:\n        {patch}",
    "exception group": "try:\n    pass\nexcept* ValueError:\n    {patch}",
    "after a semicolon": "import os; {patch}",
}
PATCHES = {
    "assignment": "GPTModel.forward = fast",
    "setattr": "setattr(GPTModel, 'forward', fast)",
    "register": "registry.register_patch('megatron.core.models.gpt.GPTModel.forward', fast)",
}


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("place", PLACES)
def test_place(place: str, patch: str) -> None:
    body = PLACES[place].format(patch=PATCHES[patch])
    check_found(
        "from megatron.core.models.gpt import GPTModel\nfrom mine import registry\ndef fast(self): ...\n" + body + "\n",
        target=f"{GPT}.forward",
    )


@pytest.mark.parametrize(
    "expression", ["x = [{patch} for _ in range(1)]", "x = lambda: {patch}", "x = True and {patch}", "print({patch})"]
)
def test_setattr_inside_an_expression(expression: str) -> None:
    body = expression.format(patch=PATCHES["setattr"])
    check_found(
        f"from megatron.core.models.gpt import GPTModel\ndef fast(self): ...\n{body}\n",
        target=f"{GPT}.forward",
        shape="setattr",
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_marks(newline: str, mark: str) -> None:
    text = textwrap.dedent("""\
        from megatron.core.models.gpt import GPTModel
        def fast(self): ...
        GPTModel.forward = fast
    """)
    finding = check_found(
        {"patches.py": (mark + text.replace("\n", newline)).encode()}, target=f"{GPT}.forward", line=3
    )
    assert finding.source == "GPTModel.forward = fast"


def test_a_line_continued_with_a_backslash() -> None:
    check_found(
        "from megatron.core.models.gpt import GPTModel\nGPTModel.forward \\\n    = \\\n    print\n",
        target=f"{GPT}.forward",
        line=2,
        end_line=4,
    )


def test_columns_count_characters() -> None:
    check_found(
        "from megatron.core.models.gpt import GPTModel\nname = 'ééé'; GPTModel.forward = print\n",
        target=f"{GPT}.forward",
        column=15,
    )


@pytest.mark.parametrize(
    "head", ["if True", "for i in range(2)", "while True", "with open('x') as f", "def f()", "class C", "try"]
)
def test_on_the_line_of_a_compound_statement(head: str) -> None:
    tail = "except ValueError: pass\n" if head == "try" else ""
    check_found(
        f"from megatron.core.models.gpt import GPTModel\n{head}: GPTModel.forward = print\n{tail}",
        target=f"{GPT}.forward",
    )


def test_lines_are_counted_as_python_counts_them() -> None:
    finding = check_found(
        'from megatron.core.models.gpt import GPTModel\n\f\ntext = "\u2028 \x1c"\nGPTModel.forward = print\n',
        target=f"{GPT}.forward",
        line=4,
    )
    assert finding.source == "GPTModel.forward = print"
