"""What is no proof that Megatron has a change, on a history of one small module."""

import textwrap
from collections.abc import Iterator

import pytest
from checking import found_in

from mcore_unpatch.findings import Finding
from mcore_unpatch.megatron import history
from mcore_unpatch.megatron.definitions import read_module
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.scanner.judging import upstream

MODULE = "megatron.core.utils"
OLD = """\
class Kept:
    first = 1
    second = 2


def f(x):
    a = one(x)
    return a


def g(x):
    for y in x:
        p = one(y)
        q = two(y)
        r = three(y)
    for y in reversed(x):
        p = one(y)
        q = two(y)
        r = three(y)
    return p
"""
NEW = """\
class Kept:
    first = 1
    second = 2
    third = 3


def f(x):
    a = one(x)
    if a:
        b = two(x)
        c = three(x)
    d = four(x)
    return d


def g(x):
    for y in x:
        p = one(y)
        q = other(y)
        r = three(y)
    for y in reversed(x):
        p = one(y)
        q = two(y)
        r = three(y)
    return p
"""


@pytest.fixture(autouse=True)
def releases(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Up to 0.15 the module is old, from 0.16 on new."""
    old, new = (read_module(text.encode(), MODULE) for text in (OLD, NEW))
    packed = history.pack({release: new if release >= "0.16" else old for release in RELEASES})
    known = history.unpack(packed)
    monkeypatch.setattr(history, "_known", lambda: known)
    caches = (
        upstream._names,
        upstream.definition,
        upstream.functions_of,
        upstream._spans,
        upstream._by_body,
        upstream._read_by,
    )
    for cached in caches:
        cached.cache_clear()
    yield
    for cached in caches:
        cached.cache_clear()


def findings_of(body: str, section: str) -> list[Finding]:
    body = textwrap.dedent(body).replace("|", "")
    lines = body.splitlines()
    old, new = (sum(not line.startswith(mark) for line in lines) for mark in "+-")
    head = f"--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -20,{old} +20,{new} @@ {section}\n"
    return [one for one in found_in({"a.patch": head + body}) if one.target != MODULE]


def finding_of(body: str, section: str) -> Finding:
    (finding,) = findings_of(body, section)
    return finding


def verdict(body: str, section: str = "class Kept:") -> str:
    finding = finding_of(body, section)
    return finding.done.partition(" since ")[2].partition(",")[0] or finding.verdict


WHOLE = """\
| def f(x):
|     a = one(x)
|+    if a:
|+        b = two(x)
|+        c = three(x)
|+    d = four(x)
"""


def test_the_change_itself() -> None:
    assert verdict(WHOLE) == "0.16"


def test_part_of_it() -> None:
    assert verdict(WHOLE.replace("|+        c = three(x)\n", "")) == "keep"
    assert verdict(WHOLE.replace("three", "thirty")) == "keep"


def test_in_another_block() -> None:
    assert verdict(WHOLE.replace("+        c = ", "+    c = ")) == "keep"
    assert verdict(WHOLE.replace("+    d = ", "+    else:\n|+        d = ")) == "keep"


def test_with_something_that_is_cut() -> None:
    assert verdict(WHOLE + "|     log(\n|+        x,\n|         a,\n") == "keep"


def test_with_a_parameter_that_megatron_does_not_have() -> None:
    other = WHOLE.replace("| def f(x):\n", "|-def f(x):\n|+def f(x, mine):\n")
    assert verdict(other) == "keep"
    cut = WHOLE.replace("| def f(x):\n", "|     x,\n|+    mine,\n| ):\n")
    assert verdict(cut, "def f(") == "keep"


def test_one_statement_alone() -> None:
    assert verdict("|     x,\n| ):\n|+    d = four(x)\n", "def f(") == "keep"


def test_in_one_of_two_places() -> None:
    body = "|         p = one(y)\n|-        q = two(y)\n|+        q = other(y)\n|         r = three(y)\n"
    assert verdict(body, "def g(x):") == "keep"


def test_statements_that_came_since_are_counted() -> None:
    body = "|     a = one(x)\n|+    d = four(x)\n|+    e = five(x)\n|     return a\n"
    said = "It no longer applies to megatron-core 0.19, where 1 of the 2 statements it adds stand by now;"
    assert finding_of(body, "def f(x):").evidence.startswith(said)


def test_statements_that_always_stood_elsewhere_are_not() -> None:
    body = "|         r = three(y)\n|+        p = one(y)\n|     return p\n"
    assert "stand" not in finding_of(body, "def g(x):").evidence


def test_lines_that_belong_to_another_function_afterwards() -> None:
    """As diffs have it where a function is put above another's end."""
    body = WHOLE + "|+\n|+\n|+def h(x):\n|+    e = 1\n|     return d\n"
    assert all(one.verdict != "delete" for one in findings_of(body, ""))


class TestFields:
    def test_the_field_itself(self) -> None:
        assert verdict("|     second = 2\n|+    third = 3\n| \n") == "0.16"

    def test_in_place_of_one_that_megatron_still_has(self) -> None:
        assert verdict("|-    second = 2\n|+    third = 3\n| \n") == "keep"

    def test_a_local_variable_is_no_field(self) -> None:
        assert verdict("|         unknown = 2\n|+        third = 3\n|         more = 3\n") == "keep"
