"""What models know of options, fallbacks of imports, classes from specs, and items of lists."""

from collections.abc import Mapping

import pytest

from mcore_unpatch.library.build import build
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import CALLED, SLOT, Library, Model


def model(files: Mapping[str, str], items: Mapping[tuple[str, str], str] | None = None) -> Model:
    texts = {"__init__": "", **files}
    sources = [(f"toy/{name}.py", text.encode()) for name, text in texts.items()]
    return build(Library("toy", ("toy",), items or {}), "1.0", sources)


def test_what_a_field_says_of_its_option_counts() -> None:
    field = 'kept: int = field(metadata={"argparse_meta": {"arg_names": ["--other"], "dest": "other"}})'
    toy = model({"a": f"from dataclasses import field\nclass Settings:\n    {field}\n"})
    assert "other" in toy.options


@pytest.mark.parametrize("stand_in", ["Base = None", "Base, other = None, None"])
def test_none_in_place_of_an_import_of_its_own_is_not_what_it_is(stand_in: str) -> None:
    text = f"if HAVE:\n    from toy.b import Base\nelse:\n    {stand_in}\nclass Sub(Base): pass\n"
    toy = model({"a": text, "b": "class Base:\n    def run(self): pass\n"})
    known = toy.find("toy.a.Sub.run")
    assert known is not None and known.name == "toy.b.Base.run"


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


def test_a_default_is_what_a_field_holds_however_it_is_written() -> None:
    head = "from dataclasses import dataclass, field\n@dataclass\nclass Config:\n    size: int"
    texts = (" = 8\n", " = field(default=8, metadata={'help': 'x'})\n", " = field(metadata={})\n")
    plain, wrapped, other = (model({"a": head + text}) for text in texts)
    assert plain.facts["toy.a.Config.size"].digest == wrapped.facts["toy.a.Config.size"].digest
    for one in (plain, wrapped):
        assert (taken := one.called_with("toy.a.Config")) is not None
        assert taken.defaults == {"size": "8"}
    assert (required := other.called_with("toy.a.Config")) is not None
    assert required.required == {"size"}


def test_a_function_gives_what_the_one_gives_whose_result_it_returns() -> None:
    same = "def same(x):\n    if x: return pair(x)\n    return x, 1\n"
    found = model({"a": f"def pair(x): return x, x\n{same}def loop(x): return loop(x)\n"})
    gives = [found.facts[f"toy.a.{name}"].trait("gives") for name in ("pair", "same", "loop")]
    assert gives == ["2", "2", None]


def test_an_object_of_a_module_tells_its_class() -> None:
    found = model({"a": "class Queue: ...\nqueue = Queue()\n"})
    assert found.facts["toy.a.queue"].trait("made") == "toy.a.Queue"


FLAGS = """
def run(step, flag=False, other=None):
    if flag: step(1, 2)
    elif other is None: step(1)
    else: step(1, 2, 3)
    if flag and more: step(1, 2, 3, 4)
    if more: step()
"""


def test_a_parameter_that_is_called_only_where_another_is_set() -> None:
    hands = [word.replace("\xa0", " ") for word in model({"a": FLAGS}).facts["toy.a.run"].every("hands")]
    assert hands == ["step=0+", "step=1+?other is None", "step=2+?flag", "step=3+?not other is None", "step=4+?flag"]


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


def test_who_is_used_most_is_named_of_those_who_build_a_class() -> None:
    text = """\
class Part: pass
class Able:
    def make(self): return Part()
class Main:
    def make(self): return Part()
def first(x): return isinstance(x, Main)
def second(): return Main()
"""
    [use] = [use for use in model({"a": text}).uses("toy.a.Part") if use.how == CALLED]
    assert (use.place, use.users) == ("toy.a.Main.make", 2)


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


MAKERS = """
class Fast: ...
class Slow: ...
class Plain: ...
class Norm: ...
class Router: ...
Layer = Norm
class PartSubmodules:
    router: type = Router
class FastSpecProvider:
    def linear(self): return Fast
    def norm(self): return Plain
class SlowSpecProvider:
    def linear(self): return Slow
    def norm(self): return Layer
def part_spec(backend): return ModuleSpec(module=backend.linear(), submodules=PartSubmodules(norm=ModuleSpec(Norm)))
def get_spec(size, fast=True, *, wide=False):
    if wide and size: return ModuleSpec(module=Plain)
    return part_spec(FastSpecProvider() if fast else SlowSpecProvider())
def slow_spec(*args, **more): return get_spec(1, False, **more)
def same_spec(quick): return get_spec(1, fast=quick)
def build(): return get_spec(1)
def no_spec(): return 1
def norm_spec(rms):
    if rms:
        global Layer
        Layer = Plain
    return ModuleSpec(Layer)
def checked_spec(given):
    same_spec: Slow = given
    return ModuleSpec(same_spec) if given is Plain or isinstance(given, Fast) else part_spec(given)
def sparse_spec(experts=None, kind=None):
    kind = kind or Fast
    if experts is None: return ModuleSpec(Plain)
    else: return part_spec(Slow if kind is not None else kind)
def handing_spec(**more): return sparse_spec(**more)
every = PartSubmodules(a=Fast, b=Slow, c=Plain)
"""


def test_which_classes_the_specs_of_a_function_may_name() -> None:
    toy = model({"a": MAKERS})
    told = {name.removeprefix("toy.a."): fact.trait("specs") for name, fact in toy.facts.items() if fact.trait("specs")}
    assert told == {
        "part_spec": "Norm,Router",
        "get_spec": "fast/Fast,fast/FastSpecProvider,Norm,size/Plain,wide/Plain,Router,Slow,SlowSpecProvider,part_spec",
        "slow_spec": "Norm,wide/Plain,Router,Slow,SlowSpecProvider,get_spec,part_spec",
        "norm_spec": "Layer,Norm,rms/Plain",
        "checked_spec": "Norm,Router,part_spec",
        "sparse_spec": f"Fast,{(experts := 'experts/Norm,Plain,experts/Router,experts/Slow,experts/part_spec')}",
        "handing_spec": f"Fast,{experts},sparse_spec",
        "same_spec": "quick/Fast,quick/FastSpecProvider,Norm,Plain,Router,Slow,SlowSpecProvider,get_spec,part_spec",
    }
