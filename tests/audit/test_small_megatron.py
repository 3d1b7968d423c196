"""Which values count as Megatron's own, on a Megatron of a few lines: one case for each way to hold a function."""

from typing import Any

import pytest
from small_megatron import said_by

FORWARD, BACKWARD = "shapes.Shape.forward", "shapes.Shape.backward"
MINE = "ours.patches.mine"
PLAIN, SHAPE = "megatron.core.shapes.plain", "megatron.core.shapes.Shape"
NOTHING = "builtins.NoneType"
KEPT = "megatron.core.shapes.kept.<locals>.wrapper"
# Name: what is done, and what is told of it: the kind, the name, and who did it.
PATCHES: dict[str, tuple[str, list[tuple[str, str, str]]]] = {
    "nothing": ("", []),
    "method": ("shapes.Shape.forward = patches.mine", [("method", FORWARD, MINE)]),
    "static": ("shapes.Shape.unit = staticmethod(patches.mine)", [("method", "shapes.Shape.unit", MINE)]),
    "class method": ("shapes.Shape.forward = classmethod(patches.mine)", [("method", FORWARD, MINE)]),
    "bound": ("shapes.Shape.forward = types.MethodType(patches.mine, 1)", [("method", FORWARD, MINE)]),
    "property over assigned": ("shapes.Shape.color = property(patches.mine)", [("added", "shapes.Shape.color", MINE)]),
    "property": ("shapes.Shape.forward = property(patches.mine)", [("method", FORWARD, MINE)]),
    "partial": ("shapes.Shape.forward = functools.partial(patches.mine)", [("method", FORWARD, MINE)]),
    "cached": ("shapes.Shape.forward = functools.cache(patches.mine)", [("method", FORWARD, MINE)]),
    "callable": ("shapes.Shape.forward = patches.Callable(patches.mine)", [("method", FORWARD, MINE)]),
    "wrapped": (
        "shapes.Shape.forward = patches.around(shapes.Shape.forward)",
        [("method", FORWARD, "ours.patches.around.<locals>.wrapped")],
    ),
    "decorated by Python": (
        "import contextlib; shapes.Shape.forward = contextlib.contextmanager(iter)([0])(patches.mine)",
        [("method", FORWARD, MINE)],
    ),
    "own method, decorated by Python": (
        "import contextlib; shapes.Shape.forward = contextlib.contextmanager(iter)([0])(shapes.Shape.forward)",
        [("method", FORWARD, "a decorator of contextlib")],
    ),
    "imported, with a definition beside": ("shapes.width = patches.mine", [("function", "shapes.width", MINE)]),
    "own method, own decorator": (
        "shapes.Shape.forward = shapes.kept(shapes.Shape.forward)",
        [("method", FORWARD, KEPT)],
    ),
    "exchanged": ("shapes.Shape.forward = shapes.Shape.backward", [("method", FORWARD, f"megatron.core.{BACKWARD}")]),
    "inner class": ("shapes.Shape.Edge.turn = patches.mine", [("method", "shapes.Shape.Edge.turn", MINE)]),
    "dataclass": ("shapes.Point.__init__ = patches.mine", [("added", "shapes.Point.__init__", MINE)]),
    "method switched off": ("shapes.Shape.forward = None", [("method", FORWARD, NOTHING)]),
    "method that is a number": ("shapes.Shape.forward = 3", [("method", FORWARD, "builtins.int")]),
    "decorated, switched off": ("shapes.area = None", [("function", "shapes.area", NOTHING)]),
    "assigned, switched off": ("shapes.switched = None", []),
    "added method": ("shapes.Shape.extra = patches.mine", [("added", "shapes.Shape.extra", MINE)]),
    "added of Python": ("shapes.Shape.extra = len", []),
    "added data": ("shapes.Shape.extra = 3", []),
    "added function": ("shapes.extra = patches.mine", [("added", "shapes.extra", MINE)]),
    "decorated": ("shapes.area = patches.mine", [("function", "shapes.area", MINE)]),
    "decorated again": ("shapes.area = shapes.kept(shapes.area)", []),
    "one of two definitions": ("shapes.fast = patches.mine", [("function", "shapes.fast", MINE)]),
    "assigned": ("shapes.switched = shapes.area", []),
    "assigned by us": ("shapes.switched = patches.mine", [("imported", "shapes.switched", MINE)]),
    "function": (
        "import ours.taken, theirs; shapes.plain = patches.mine",
        [("function", "shapes.plain", MINE), ("stale", "users.plain", PLAIN), ("stale", "theirs.plain", PLAIN)],
    ),
    "function, beside modules that are none": (
        "import sys; sys.modules |= {'blocked': None, 'odd': 3, 'slots': object()}; shapes.plain = patches.mine",
        [("function", "shapes.plain", MINE), ("stale", "users.plain", PLAIN)],
    ),
    "class": (
        "import theirs; shapes.Shape = patches.Shape",
        [
            ("class", "shapes.Shape", "ours.patches.Shape"),
            ("stale", "users.Shape", SHAPE),
            ("stale", "theirs.Shape", SHAPE),
        ],
    ),
    "class of the same name": (
        "shapes.Shape = type('Shape', (), {'__module__': 'megatron.core.shapes'})",
        [("class", "shapes.Shape", SHAPE)],
    ),
    "imported": ("shapes.length = patches.mine", [("imported", "shapes.length", MINE)]),
    "imported and wrapped here": (
        "shapes.length = functools.partial(lines.length)",
        [("imported", "shapes.length", "megatron.core.lines.length")],
    ),
    "patched where it stands, imported later": (
        "lines.length = patches.mine; shapes.length = lines.length",
        [("function", "lines.length", MINE)],
    ),
    "mock": (
        "from unittest import mock; shapes.Shape.forward = mock.MagicMock()",
        [("method", FORWARD, "unittest.mock.MagicMock")],
    ),
    "a module": (
        "import sys; sys.modules['megatron.core.fake'] = types.ModuleType('megatron.core.fake')",
        [("module", "fake", "megatron.core.fake")],
    ),
    "what is no module": (
        "import sys; sys.modules['megatron.core.fake'] = patches.Callable(1)",
        [("module", "fake", "ours.patches.Callable")],
    ),
    "of Python": (
        "shapes.plain = len",
        [("function", "shapes.plain", "builtins.builtin_function_or_method"), ("stale", "users.plain", PLAIN)],
    ),
    "of Python over a decorated one": ("shapes.area = len", []),
    "opaque": ("shapes.area = patches.Opaque()", [("function", "shapes.area", "ours.patches.Opaque")]),
    "a mock beside Megatron's own mocks": ("from unittest import mock; engine.Narrow = mock.MagicMock()", []),
    "a mock of a function beside them": (
        "from unittest import mock; engine.run = mock.MagicMock()",
        [("function", "engine.run", "unittest.mock.MagicMock")],
    ),
    "a mock of a class": (
        "from unittest import mock; shapes.Shape = mock.MagicMock()",
        [("function", "shapes.Shape", "unittest.mock.MagicMock"), ("stale", "users.Shape", SHAPE)],
    ),
    "a class inside a class": (
        "shapes.Shape.Edge = type('Edge', (), {'__module__': 'megatron.core.shapes', '__qualname__': 'Shape.Edge'})",
        [],
    ),
    "an added mock": (
        "from unittest import mock; shapes.extra = mock.MagicMock()",
        [("added", "shapes.extra", "unittest.mock.MagicMock")],
    ),
    "a mock of what is imported": (
        "from unittest import mock; shapes.length = mock.MagicMock()",
        [("imported", "shapes.length", "unittest.mock.MagicMock")],
    ),
    "an added function of Python's": ("import textwrap; shapes.extra = textwrap.dedent", []),
    "a generated method": ("exec('def extra(self): pass', vars(shapes)); shapes.Shape.extra = shapes.extra", []),
    "wrappers that hold each other": (
        "shapes.Shape.forward = patches.holding_each_other()",
        [("method", FORWARD, "ours.patches.Callable")],
    ),
    "an empty cell": (
        "shapes.Shape.forward = patches.hidden()",
        [("method", FORWARD, "ours.patches.hidden.<locals>.never_filled")],
    ),
}
# What decorators keep of a function: who wrote that one is named, not the class of the decorator.
for kept in ("__wrapped__", "__func__", "func", "fget", "fn", "_fn", "_torchdynamo_orig_callable", "_init_fn"):
    PATCHES[f"held as {kept}"] = (
        f"shapes.Shape.forward = patches.Holder({kept!r}, patches.mine)",
        [("method", FORWARD, MINE)],
    )
PATCHES["held as something else"] = (
    "shapes.Shape.forward = patches.Holder('other', patches.mine)",
    [("method", FORWARD, "ours.patches.Holder")],
)
ROWS = """
{code}
report = audit.audit(files=False)
said = [[one.kind, one.name.removeprefix("megatron.core."), one.by.name] for one in report.deviations]
"""
# Programs that ask something else.
ORDER = """
shapes.Shape.forward = patches.outside(patches.around(shapes.Shape.forward))
(one,) = audit.audit(files=False).deviations
said = [str(one), [origin.name for origin in one.order]]
"""
ONE_INSTALLER = """
def twice(function):
    inner = patches.around(function)
    return patches.around(inner)
shapes.Shape.forward = twice(shapes.Shape.forward)
(one,) = audit.audit(files=False).deviations
said = [origin.name for origin in one.order]
"""
TRIED = """
def tried(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except (audit.AuditError, ValueError) as error:
        return [type(error).__name__, *str(error).splitlines()]
    return []
shapes.plain = shapes.Shape.forward = patches.mine
shapes.Shape.backward = patches.outside(shapes.Shape.backward)
"""
FORBIDDEN = (
    TRIED
    + """
targets = ["Shape", "Shape.forward", "megatron.core.shapes", "megatron.core.shapes.Shape.forward", "plain", "Edge",
           "Shape.unit", "megatron.core.lines", "megatron.core.users", "megatron.core.line", "Shap", "shapes.plain"]
said = {target: tried(audit.forbid, target) for target in targets} | {"": tried(audit.forbid)}
"""
)
EXPECTED = (
    TRIED
    + """
said = [tried(audit.expect, "Shape.forward"), tried(audit.expect, "plain", by="ours"),
        tried(audit.expect, "plain", by="ours.patches"), tried(audit.expect, "Shape.backward", by="ours"),
        tried(audit.expect, "plain", by="our"), tried(audit.expect, "Shape.unit", "Shape.forward"), tried(audit.expect)]
"""
)
MODELS = """
import megatron.core.model as model, swapped
def rows(made):
    report = audit.audit(made, files=False)
    return [[one.kind, one.name.removeprefix("megatron.core.model."), one.by.name, *one.where]
            for one in report.deviations] + [[str(hook)] for hook in report.hooks]
def changed(**values):
    made = model.Model()
    vars(made).update(values)
    return rows(made)
bound = model.Model()
bound.first.forward = types.MethodType(patches.mine, bound.first)
bound_foreign = swapped.Foreign()
bound_foreign.forward = types.MethodType(patches.mine, bound_foreign)
hooked = model.Model()
hooked._forward_hooks = {1: swapped.watches}
hooked.first._backward_pre_hooks = {1: swapped.watches, 2: model.made}
said = {
    "as made": rows(model.Model()),
    "several": rows([model.Model(), bound]),
    "of another class of Megatron": changed(first=model.Other()),
    "of another class": changed(first=swapped.Foreign()),
    "of a subclass": changed(first=swapped.Mine()),
    "one of two": changed(either=model.Layer(), chosen=model.Layer()),
    "none of two": changed(either=swapped.Foreign(), chosen=swapped.Foreign()),
    "given": changed(given=swapped.Foreign()),
    "made by a function": changed(made=swapped.Foreign()),
    "made later": [changed(later=swapped.Mine()), changed(later=swapped.Foreign())],
    "data over a method": changed(forward=3),
    "Megatron's over a method": changed(forward=model.made),
    "over a method of Megatron's, in a class of theirs": changed(given=bound_foreign),
    "hooks": rows(hooked),
}
"""
WATCHED = """
import sys
for name in [name for name in sys.modules if name.startswith("megatron")]:
    del sys.modules[name]
running = audit.watch()
import megatron.core.shapes as shapes
original = shapes.Shape.forward
patches.reads()
patches.install_data()
patches.install()
patches.install_by_name("backward")
patches.install()
patches.put_back(original)
shapes.switched = shapes.area
shapes.later = patches.mine
patches.removes()
patches.install_on_the_type("forward")
list(patches.yields())
same = audit.watch() is running
rows = [[one.name.removeprefix("megatron.core."), one.by.name, one.moment, *one.stack[:1]] for one in
        audit.audit(files=False).rebindings]
said = [rows, same]
"""
FILES = """
import hashlib, os, sys
from base64 import urlsafe_b64encode
from pathlib import Path
top = Path(megatron.core.__file__).parents[2]
def digest(name):
    return "sha256=" + urlsafe_b64encode(hashlib.sha256((top / name).read_bytes()).digest()).rstrip(b"=").decode()
rows = [f"megatron/core/{name}.py,{digest(f'megatron/core/{name}.py')},1" for name in ("__init__", "lines", "model")]
rows += ["megatron/core/shapes.py,sha256=AAAA,1", "megatron/core/gone.py,sha256=AAAA,1", "", "other/gone.py,sha256=A,1",
         "megatron/core/unhashed.txt,,", "megatron/core/md5.py,md5=AAAA,1"]
folder = top / "megatron_core-0.19.2.dist-info"
def told():
    report = audit.audit()
    return [[str(one) for one in report.deviations], report.notes]
without = told()
folder.mkdir()
(folder / "METADATA").write_text("Metadata-Version: 2.1\\nName: megatron-core\\nVersion: 0.19.2\\n")
no_record = told()
(folder / "RECORD").write_text("\\n".join(rows) + "\\n")
(top / "megatron/core/unhashed.txt").write_text("")
(top / "megatron/core/md5.py").write_text("")
said = [without, no_record, told()]
"""
OTHER_PROGRAMS = {
    "order": ORDER,
    "one installer": ONE_INSTALLER,
    "forbid": FORBIDDEN,
    "expect": EXPECTED,
    "models": MODELS,
    "watch": WATCHED,
    "files": FILES,
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    programs = {name: ROWS.format(code=code) for name, (code, _) in PATCHES.items()}
    return said_by(tmp_path_factory.mktemp("small"), programs | OTHER_PROGRAMS)


def test_what_is_told_of_each_way_to_patch(said: dict[str, Any]) -> None:
    told = {name: said[name] for name in PATCHES}
    assert told == {name: [list(row) for row in rows] for name, (_, rows) in PATCHES.items()}


def test_wrappers_around_each_other(said: dict[str, Any]) -> None:
    text, names = said["order"]
    assert names == ["ours.patches.around.<locals>.wrapped", "ours.patches.outside.<locals>.wrapped_again"]
    assert text.startswith("megatron.core.shapes.Shape.forward is rebound, by ours.patches.outside.<locals>.wrapped")
    assert "; in this order: ours.patches.around" in text
    assert ", then ours.patches.outside" in text
    assert said["one installer"] == []  # inner functions of one are one patch


def named(answer: list[str]) -> list[str]:
    """The names in the lines of an error, its kind first."""
    return [answer[0], *(line.split()[0].removeprefix("megatron.core.") for line in answer[2:])] if answer else []


def test_forbidden_names(said: dict[str, Any]) -> None:
    told = {target: named(answer) for target, answer in said["forbid"].items()}
    unknown = {target for target, answer in told.items() if answer[:1] == ["ValueError"]}
    assert unknown == {"Edge", "megatron.core.line", "Shap"}
    of_shape = ["AuditError", FORWARD, BACKWARD]
    assert {target: answer for target, answer in told.items() if target not in unknown} == {
        "Shape": of_shape,
        "Shape.forward": ["AuditError", FORWARD],
        "megatron.core.shapes": ["AuditError", "shapes.plain", *of_shape[1:]],
        "megatron.core.shapes.Shape.forward": ["AuditError", FORWARD],
        "plain": ["AuditError", "shapes.plain", "users.plain"],
        "shapes.plain": ["AuditError", "shapes.plain"],
        "Shape.unit": [],
        "megatron.core.lines": [],
        "megatron.core.users": ["AuditError", "users.plain"],
        "": ["AuditError", "shapes.plain", *of_shape[1:], "users.plain"],
    }
    assert "Shap is no name of the Megatron in this process" in said["forbid"]["Shap"][1]


def test_expected_patches(said: dict[str, Any]) -> None:
    there, by_package, by_module, by_wrapper, by_others, absent, nothing = said["expect"]
    assert there == by_package == by_module == by_wrapper == []
    assert by_others[2].startswith("  plain is not our's: megatron.core.shapes.plain is rebound, by ours.patches.mine")
    assert absent[1:] == ["A patch that this job expects is absent:", "  Shape.unit is Megatron's own"]
    assert nothing[0] == "ValueError"


def test_models(said: dict[str, Any]) -> None:
    told = said["models"]
    first, second = told.pop("hooks")
    assert first[0].startswith("the model itself: forward hook, by swapped.watches (")
    assert second[0].startswith("first: backward pre-hook, by swapped.watches (")
    assert {name: rows for name, rows in told.items() if rows} == {
        "several": [["instance", "Module.forward", MINE, "chunk1.first"]],
        "of another class": [["submodule", "Model.first", "swapped.Foreign", ""]],
        "none of two": [["submodule", "Model.chosen", "swapped.Foreign", ""]],
        "made later": [[], [["submodule", "Model.later", "swapped.Foreign", ""]]],
        "over a method of Megatron's, in a class of theirs": [["instance", "Module.forward", MINE, "given"]],
    }


def test_a_watch(said: dict[str, Any]) -> None:
    rows, same = said["watch"]
    assert [row[:3] for row in rows] == [
        [FORWARD, MINE, "install returned"],
        [BACKWARD, "ours.patches.again", "install_by_name returned"],
        [FORWARD, f"megatron.core.{FORWARD}", "put_back returned"],
        [BACKWARD, "builtins.NoneType", "removes returned"],
        [FORWARD, MINE, "install_on_the_type returned"],
        [FORWARD, "ours.patches.again", "yields returned"],
    ]
    assert [row[3].rpartition("/")[2].split(":")[1].split()[2] for row in rows] == [
        "install",
        "install_by_name",
        "put_back",
        "removes",
        "install_on_the_type",
        "yields",
    ]
    assert same is True


def test_files_beside_their_record(said: dict[str, Any]) -> None:
    nowhere = [[], ["megatron-core was not installed from a wheel, so its files cannot be compared with one."]]
    assert said["files"][:2] == [nowhere, nowhere]
    assert said["files"][2] == [
        [
            "megatron/core/shapes.py differs from the wheel",
            "megatron/core/gone.py is missing, though the wheel has it",
            "megatron/core/engine.py is not in the wheel",
            "megatron/core/users.py is not in the wheel",
        ],
        [],
    ]
