"""A model of a library: built from source, packed, and asked."""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest
from downloads import unpacked

from mcore_unpatch.library.build import build
from mcore_unpatch.library.digests import dump
from mcore_unpatch.library.fact import Call
from mcore_unpatch.library.model import ASKED, BASE, DEFAULT, Library, Model, NameIndex
from mcore_unpatch.library.packing import Atlas, pack
from mcore_unpatch.library.sources import light_model, read_source
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import LIBRARY, RELEASES

FACTORIES = {
    "a": """
from toy.b import Config, Factory
def forward(step, data):
    out, loss = step(data, last=True)
def pick(kind):
    if kind:
        return forward
    chosen = other
    return chosen
def other(step, data):
    step(data)
def pretrain(*, func):
    run = pick(1)
    run(step=func, data=1)
    return wrap(func)
def wrap(inner): return lambda: inner()
def parse(parser):
    parser.add_argument("-x", "--long-name")
    parser.add_argument("--plain", dest="other_name")
    left = ["hidden"]
    Factory(Config, exclude=left).build(parser)
""",
    "b": """
from dataclasses import dataclass
@dataclass
class Config:
    size: int = 1
    hidden: int = 2
    spare: int = 3
class Factory:
    def build(self, parser):
        for name in self.names:
            parser.add_argument(*name)
class Base:
    def __init__(self, model: Config): self.model = model
    def run(self): return self.model(1)
class Sub(Base):
    def __init__(self, model: Factory): super().__init__(model)
    def go(self): return self.model.build(2)
def read(config): return config.size
""",
}


TOY = Library("toy", ("toy",))


def model(files: Mapping[str, str], label: str = "1.0") -> Model:
    return build(TOY, label, [(f"toy/{name}.py", text.encode()) for name, text in {"__init__": "", **files}.items()])


# Names of a module that its own code reads, however they came there, and others that nothing reads.
READ = """
import os
from elsewhere import gather, keep as kept, barrier, unused, Kind
from toy.absent import tools
from toy import helper
from toy.helper import build_module, go as went, go as left
if os.name:
    reduce = os.reduce
else:
    reduce = os.other
spare = os.spare
queue = os.queue
def run(x: Kind):
    with gather(x):
        reduce(x)
        tools.go(x)
        helper.go(x)
        build_module(x, went(x))
    return kept
class Holder:
    def barrier(self):
        from elsewhere import barrier
        return barrier(self.queue)
"""


def test_what_a_module_reads_of_its_own_is_read() -> None:
    toy = model({"a": READ, "helper": "def go(x): ...\ndef build_module(x, y): ..."})
    names = {name.removeprefix("toy.a.") for name, fact in toy.facts.items() if fact.trait("unread") is not None}
    assert names == {"spare", "queue", "barrier", "unused", "left", "Kind", "run"}


def test_fields_know_who_reads_them_and_methods_who_calls_them() -> None:
    toy = model(FACTORIES)
    assert toy.facts["toy.b.Config.spare"].trait("unread") is not None
    assert toy.facts["toy.b.Config.size"].trait("unread") is None
    assert toy.facts["toy.b.Config.size"].trait("read") == "toy.b.read"
    assert {one.place for one in toy.calls("toy.b.Factory.build")} == {"toy.a.parse", "toy.b.Sub.go"}


GIVEN = """
import torch
class Kernel(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale): ...
class Part:
    def __init__(self, config, submodules): ...
class LayerSubmodules:
    part: type = None
def spec(): return LayerSubmodules(part=Part)
class Layer:
    def __init__(self, config, submodules):
        self.part = submodules.part(config, last=1)
    def run(self, x, callback):
        if self.config.wide and x:
            callback(x)
        return Kernel.apply(x, 2)
"""


def test_what_autograd_a_spec_and_a_condition_add_to_a_call() -> None:
    toy = model({"a": GIVEN})
    assert [one.call for one in toy.calls("toy.a.Kernel.forward")] == [Call(3)]
    assert [one.call for one in toy.calls("toy.a.Part.__init__")] == [Call(1, ("last",), double_star=True)]


SHAPES = {
    "__init__": "from .shapes import *\nfrom toy.shapes import Shape as Form\nAlias = Form\n",
    "shapes": """
import abc
class Shape(abc.ABC):
    def area(self): ...
    def report(self, unit, *, precise=False):
        width, height = self.sides()
        return self.area(), unit
class Square(Shape):
    def __init__(self, side): self.side = side
    def sides(self): return self.side, self.side
    def area(self): return self.side ** 2
def make(kind, side=1): return kind(side)
def check(shape): return isinstance(shape, Square)
""",
    "use": """
from toy.shapes import Square, make
class Board:
    def __init__(self, shape: Square, kind=Square):
        self.shape = shape
    def draw(self, **rest):
        self.shape.report("cm", precise=True)
        made = make(Square, side=2)
        return self.shape.area()
""",
}


def test_names_are_found_through_re_exports_stars_aliases_and_bases() -> None:
    toy = model(SHAPES)
    places = {"toy.Form.area": "toy.shapes.Shape.area", "toy.make": "toy.shapes.make", "toy.Alias": "toy.shapes.Shape"}
    places |= {"toy.use.Square.report": "toy.shapes.Shape.report", "toy.Square": "toy.shapes.Square"}
    for name, place in places.items():
        found = toy.find(name)
        assert found is not None, name
        assert found.name == place
    assert toy.find("toy.shapes.Square.nothing") is None
    assert toy.find("toy.nowhere.make") is None


def test_a_class_knows_its_lineage_and_what_derives_from_it() -> None:
    toy = model(SHAPES)
    assert toy.lineage("toy.shapes.Square") == ("toy.shapes.Square", "toy.shapes.Shape", "abc.ABC")
    assert toy.derived["toy.shapes.Shape"] == ["toy.shapes.Square"]


def test_a_class_that_several_bases_share_stands_behind_them() -> None:
    toy = model({"m": "class A: ...\nclass B(A): ...\nclass C(A): ...\nclass D(B, C): ...\n"})
    assert [name.rpartition(".")[2] for name in toy.lineage("toy.m.D")] == ["D", "B", "C", "A"]


def test_each_call_is_known_with_its_form_and_who_makes_it() -> None:
    toy = model(SHAPES)
    (report,) = toy.calls("toy.shapes.Square.report")
    assert report.call == Call(1, ("precise",))
    (made,) = toy.calls("toy.shapes.make")
    assert made.call == Call(1, ("side",))
    (unpacking,) = toy.calls("toy.shapes.Square.sides")
    assert unpacking.call is not None
    assert unpacking.call.unpacked == 2


def test_a_base_classes_call_reaches_a_subclass_unless_that_has_a_method_in_place_of_the_caller() -> None:
    text = "class A:\n    def run(self): return self.step(1)\n    def step(self, x): ...\n"
    text += "class B(A):\n    def step(self, x): ...\n"
    assert [usage.place for usage in model({"m": text}).calls("toy.m.B.step")] == ["toy.m.A.run"]
    other = text + "class C(A):\n    def run(self): ...\n    def step(self, x): ...\n"
    assert model({"m": other}).calls("toy.m.C.step") == []


def test_a_call_of_super_is_one_of_that_definition_alone() -> None:
    text = "class A:\n    def f(self, x): ...\nclass B(A):\n    def f(self, x): return super().f(x)\n"
    toy = model({"m": text})
    assert [usage.place for usage in toy.calls("toy.m.A.f")] == ["toy.m.B.f"]
    assert toy.calls("toy.m.B.f") == []


USERS = {
    "a": """
class Part:
    def __init__(self, a): pass
def go(x, y=0): pass
go(1)
def twice():
    go(1, 2)
    go(x=1)
""",
    "b": """
import os
from toy.a import Part, go
if os.name:
    from toy.a import go as run
else:
    run, spare = None, None
class LayerSubmodules:
    part: type = None
class Layer:
    def __init__(self, submodules):
        self.part = build_module(submodules.part, 1)
        go(y=1, x=2)
class Named:
    def __init__(self):
        self.part = Part(1)
        run(1)
def get_layer_spec(): return LayerSubmodules(part=Part)
""",
}


def test_who_uses_a_name_is_counted_once_whatever_the_form() -> None:
    """Classes and modules, also under a name that stands for None elsewhere; what a spec names is not built by name."""
    toy = model(USERS)
    assert {use.users for use in toy.uses("toy.a.go") if use.call} == {3}
    assert [(use.place, use.users) for use in toy.uses("toy.a.Part") if use.how == "c"] == [("toy.b.Named.__init__", 1)]
    assert any(use.place == "toy.b.Layer.__init__" for use in toy.uses("toy.a.Part.__init__"))


def test_other_uses_are_told_apart() -> None:
    toy = model(SHAPES)
    hows = {usage.how for usage in toy.uses("toy.shapes.Square")}
    assert {ASKED, DEFAULT} <= hows
    assert BASE in {usage.how for usage in toy.uses("toy.shapes.Shape")}


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("return 1, 2", "2"),
        ("x = (1, 2, 3)\n    return x", "3"),
        ("if a:\n        return 1, 2\n    return 1, 2", "2"),
        ("if a:\n        return 1, 2\n    return 1, 2, 3", None),
        ("x = g()\n    return x", None),
        ("def inner():\n        return 1, 2\n    return inner", None),
        ("yield 1, 2", None),
    ],
)
def test_how_many_values_a_function_gives_where_that_is_evident(body: str, count: str | None) -> None:
    found = model({"m": f"def f(a):\n    {body}\n"}).find("toy.m.f")
    assert found is not None
    assert found.fact.trait("gives") == count


def test_what_a_call_takes() -> None:
    toy = model(
        {
            "m": "from dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\n    y: int = 1\n"
            "@dataclass\nclass B(A):\n    z: int = 2\n"
            "class C:\n    @staticmethod\n    def f(a, /, b, *, c=1): ...\n    def g(self, a): ...\n"
        }
    )
    fields = toy.called_with("toy.m.B")
    assert fields is not None
    assert fields.names == ("x", "y", "z")
    assert fields.misfit(Call(1, ("z",))) == ""
    assert fields.misfit(Call(0, ("y",))) == "does not pass `x`"
    assert fields.misfit(Call(1, ("w",))) == "passes `w`"
    assert fields.misfit(Call(1, ("x",))) == "passes `x` twice, by position and by name"
    assert fields.misfit(Call(4)) == "passes 4 values by position, where 3 fit"
    static, method = toy.called_with("toy.m.C.f"), toy.called_with("toy.m.C.g")
    assert static is not None and method is not None
    assert static.misfit(Call(1, ("a", "b"))) == "passes `a`"
    assert method.misfit(Call(1)) == ""


def test_what_a_reader_may_change_freely_does_not_count() -> None:
    plain = model({"m": "def f(a, b=1):\n    return a\n"})
    dressed = model({"m": 'def f(a: int, b: int = 1) -> int:\n    """Text."""\n    # why\n    return a\n'})
    other = model({"m": "def f(a, b=2):\n    return a\n"})
    digests = [one.facts["toy.m.f"].digest for one in (plain, dressed, other)]
    assert digests[0] == digests[1] != digests[2]


def test_a_width_in_a_format_counts_the_same_on_every_python() -> None:
    """Some releases of Python 3.12 see an empty text after it."""
    text = next(node for node in ast.walk(ast.parse("f'{x:<{w}}'")) if isinstance(node, ast.FormattedValue))
    assert isinstance(text.format_spec, ast.JoinedStr)
    start, width, *_ = text.format_spec.values
    said = []
    for end in ([], [ast.Constant("")]):
        text.format_spec = ast.JoinedStr([start, width, *end])
        said.append(dump(text, "toy"))
    assert said[0] == said[1]
    text.format_spec = ast.JoinedStr([start])
    assert dump(text, "toy") != said[0]


def test_a_definition_counts_more_than_what_stands_in_for_it() -> None:
    text = "try:\n    class X:\n        pass\nexcept ImportError:\n    X = None\n"
    text += "if A:\n    Y = None\nelse:\n    def Y():\n        pass\n"
    toy = model({"m": text})
    assert (toy.facts["toy.m.X"].kind, toy.facts["toy.m.Y"].kind) == ("class", "function")


def test_packing_is_reproducible_and_loses_nothing() -> None:
    first, second = model(SHAPES), model({**SHAPES, "use": "VALUE = 1\n"}, "1.1")
    packed = pack([first, second])
    assert packed == pack([first, second])
    atlas = Atlas(packed)
    assert atlas.labels == ("1.0", "1.1")
    for made in (first, second):
        read = atlas.model(made.label)
        assert dict(read.facts) == dict(made.facts)
        assert {name: read.uses(name) for name in made._uses} == dict(made._uses)
    assert [label for label, fact in atlas.versions("toy.use.Board") if fact is None] == ["1.1"]


def test_a_file_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no file of models"):
        Atlas(b"something else")


def test_of_a_light_model_only_the_modules_that_are_asked_for_are_read() -> None:
    files = {f"toy/{name}.py": text.encode() for name, text in SHAPES.items()} | {"toy/broken.py": b"def ("}
    names = NameIndex(["toy.shapes.make", "toy.shapes.gone.make", "toy.nowhere.make"])  # of other versions too
    light = light_model(TOY, "1.0", files, lambda: names)
    found = light.find("toy.Form.area")
    assert found is not None
    assert found.name == "toy.shapes.Shape.area"
    assert light.moved("toy.elsewhere.make", found.fact, light) == "toy.shapes.make"


@pytest.mark.slow
def test_a_release_read_anew_is_the_one_that_is_shipped() -> None:
    files = read_source(unpacked("megatron-core", "0.18.2"), LIBRARY)
    built, shipped = build(LIBRARY, "0.18.2", files.items()), known.model("0.18.2")
    assert dict(shipped.facts) == dict(built.facts)
    assert {name: shipped.uses(name) for name in built._uses} == dict(built._uses)


def test_the_shipped_file_is_small_and_holds_every_release() -> None:
    assert known.atlas().labels == RELEASES
    file = Path(known.__file__).with_name("models.bin")
    assert file.stat().st_size < 1_500_000


@pytest.mark.slow
def test_another_library_is_a_parameter() -> None:
    library = Library("tomlkit", ("tomlkit",))
    tomlkit = build(library, "0.13.2", read_source(unpacked("tomlkit", "0.13.2"), library).items())
    assert tomlkit.find("tomlkit.parse") is not None
    assert "tomlkit.items.Item" in tomlkit.lineage("tomlkit.items.Table")
    assert "tomlkit.api.dumps" in {usage.place for usage in tomlkit.calls("tomlkit.items.item")}
