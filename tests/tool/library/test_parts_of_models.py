"""What models know of fallbacks of imports, classes from specs, and items of lists."""

from collections.abc import Mapping

import pytest

from mcore_unpatch.library.build import build
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import CALLED, SLOT, Library, Model


def model(files: Mapping[str, str], items: Mapping[tuple[str, str], str] | None = None) -> Model:
    texts = {"__init__": "", **files}
    sources = [(f"toy/{name}.py", text.encode()) for name, text in texts.items()]
    return build(Library("toy", ("toy",), items or {}), "1.0", sources)


def test_of_functions_that_depend_on_what_is_installed_the_longest_counts_and_each_may_change() -> None:
    def fact(body: str, instead: str, two: str = "if HAVE:\n  {}\nelse:\n  {}\n") -> Fact:
        return model({"a": two.format(f"def f(a, b):\n    {body}", f"def f(*args): {instead}")}).facts["toy.a.f"]

    first = fact("x = a\n    return x", "pass")
    assert first.detail == "a b"
    assert first.digest not in (fact("x = b\n    return x", "pass").digest, fact("x = a\n    return x", "0").digest)
    assert fact("x = a\n    return x", "pass", "if 1:\n  {}\n{}\n").detail == "*args"  # always the last


def test_a_class_that_a_spec_names_or_else_a_default_is_of_the_spec() -> None:
    text = """\
from elsewhere import Norm
class Layer:
    def __init__(self, submodules, other):
        cls = submodules.norm or Norm
        plain = other or Norm
        self.norm = cls(1) if cls is not None else None
        self.plain = plain(1)
"""
    facts = model({"a": text}).facts
    assert [facts[f"toy.a.Layer.{name}"].trait("from") for name in ("norm", "plain")] == [
        "spec:__init__",
        "made:__init__",
    ]


def test_calls_of_the_items_of_a_list_are_those_of_their_class() -> None:
    text = """\
class Layer:
    def forward(self, x): pass
class Block:
    def run(self):
        for number, layer in enumerate(self.layers):
            layer(1, mask=2)
        for layer in self.others:
            layer(3, other=4)
"""
    toy = model({"a": text}, {("toy.a.Block", "layers"): "toy.a.Layer"})
    assert [usage.call and usage.call.keywords for usage in toy.calls("toy.a.Layer.forward")] == [("mask",)]


def test_what_gets_all_that_a_method_is_given_is_called_as_that_is() -> None:
    text = """
class Layer(Module):
    def forward(self, *args, **kwargs):
        a, b = self.attend(*args, **kwargs)
        return self.some(*args, **{}) + self.named(*args, extra=1, **kwargs)
    def attend(self, x, mask=None): ...
    def some(self, x, mask=None): ...
    def named(self, x, mask=None, extra=None): ...
class Block(Module):
    def __init__(self): self.layers = ModuleList()
    def forward(self, x):
        for layer in self.layers:
            layer(x, mask=1)
"""
    toy = model({"a": text}, {("toy.a.Block", "layers"): "toy.a.Layer"})
    forms = {
        name: {str(usage.call) for usage in toy.calls(f"toy.a.Layer.{name}")} for name in ("attend", "some", "named")
    }
    assert forms == {"attend": {"0*+**/2", "1+mask/2"}, "some": {"0*+**"}, "named": {"0*+extra,**"}}


@pytest.mark.parametrize(
    ("slot", "named"),
    [
        ("partial(build, 1)", ["Fast", "Slow"]),
        ("build", ["Fast", "Slow"]),
        ("partial(number, 1)", []),
        ("made", ["Slow"]),  # a variable of the function counts before a function of its name
    ],
)
def test_a_slot_may_hold_a_function_that_builds(slot: str, named: list[str]) -> None:
    text = f"""\
class Fast: pass
class Slow: pass
class PartSubmodules: pass
def build(config):
    chosen = Fast if config else Slow
    return chosen(config)
def number(config): return 1
def made(): return Fast()
def get_spec():
    made = Slow
    return PartSubmodules(inner={slot})
"""
    toy = model({"a": text})
    slots = {name: [use.place for use in toy.uses(f"toy.a.{name}") if use.how == SLOT] for name in ("Fast", "Slow")}
    assert [name for name, places in slots.items() if places == ["PartSubmodules.inner"]] == named


def test_a_function_gives_what_the_one_gives_whose_result_it_returns() -> None:
    same = "def same(x):\n    if x: return pair(x)\n    return x, 1\n"
    found = model({"a": f"def pair(x): return x, x\n{same}def loop(x): return loop(x)\n"})
    gives = [found.facts[f"toy.a.{name}"].trait("gives") for name in ("pair", "same", "loop")]
    assert gives == ["2", "2", None]


def test_an_object_of_a_module_tells_its_class() -> None:
    found = model({"a": "class Queue: ...\nqueue = Queue()\n"})
    assert found.facts["toy.a.queue"].trait("made") == "toy.a.Queue"


TOLD = """
class Config:
    def gone(self, x):
        {code}
    def after(self, x): return x
"""


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("warn('Use `after` instead')", "after"),
        ("raise TypeError('Use `after` instead')", "after"),
        ("if x: raise TypeError('Use `after` instead')", None),  # for some calls alone
        ("if x:\n            assert not x, 'Use `after` instead'", None),
    ],
)
def test_what_a_function_says_to_use_instead(code: str, says: str | None) -> None:
    assert model({"a": TOLD.format(code=code)}).facts["toy.a.Config.gone"].trait("says") == says


def test_names_that_only_a_type_checker_imports() -> None:
    source = b"""
from typing import TYPE_CHECKING
import toy.always
if TYPE_CHECKING:
    from toy.a import Typed
    from toy.a import Both
else:
    Both = None
if toy.always:
    from toy.a import Sometimes
"""
    facts = build(Library("toy", ("toy",)), "1", [("toy/b.py", source)]).facts
    marked = {name: facts[f"toy.b.{name}"].trait("typing") is not None for name in ("Typed", "Both", "Sometimes")}
    assert marked == {"Typed": True, "Both": False, "Sometimes": False}


def test_a_class_under_a_local_name_is_built_by_that_name() -> None:
    text = """\
class Plain: pass
class Wide(Plain): pass
class Loud: pass
def build(wide, given):
    cls = Wide if wide else Plain
    if given:
        kind = Loud
        other = given
    return cls(1), kind(size=2), other(3)
"""
    toy = model({"a": text})
    built = {
        one: [use.place for use in toy.uses(f"toy.a.{one}") if use.how == CALLED] for one in ("Plain", "Wide", "Loud")
    }
    assert built == {"Plain": ["toy.a.build"], "Wide": ["toy.a.build"], "Loud": ["toy.a.build"]}
    assert [str(use.call) for use in toy.calls("toy.a.Loud.__init__")] == ["0+size"]


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        ("if wide: f(1)", "wide"),
        ("if not wide: f(1)", "not wide"),
        ("x = f(1) if wide else None", "wide"),
        ("x = None if wide else f(1)", "not wide"),
        ("if wide: f(1)\n    if deep: f(1)", "deep or wide"),
        ("if wide: f(1)\n    else: f(1)", ""),  # both ways
        ("if wide: f(1)\n    f(1)", ""),
        ("if wide == 3: f(1)", ""),  # not a flag
        ("if other: f(1)", ""),
    ],
)
def test_on_which_flag_of_its_own_alone_a_function_calls(body: str, condition: str) -> None:
    toy = model({"a": f"def f(x): pass\ndef g(wide, deep):\n    {body}\n"})
    assert [use.condition for use in toy.calls("toy.a.f")] == [condition]
