"""When does a patch run: each usual way to ask for a release, and what cannot be decided."""

import textwrap

import pytest
from checking import Source, found_in

from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES

HEAD = """\
import importlib, inspect, sys
import importlib.metadata
import megatron.core
import torch
from packaging import version
from packaging.version import Version, parse
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe.router import TopKRouter
def f(self, *args, **kwargs): return self
"""
OLD, NEW = "<=0.15.3", ">=0.16.0"


def only(source: Source) -> Finding:
    found = [one for one in found_in(source) if not one.path.startswith("other")]
    assert len(found) == 1, found
    return found[0]


def guarded(lines: str) -> Finding:
    return only(HEAD + textwrap.dedent(lines))


def test_the_releases_are_those_that_are_shipped() -> None:
    assert known.atlas().labels == RELEASES


TESTS = {
    'version.parse(megatron.core.__version__) >= version.parse("0.16.0")': NEW,
    'Version(megatron.core.__version__) < Version("0.16")': OLD,
    'parse(megatron.core.__version__) <= parse("0.15.3")': OLD,
    'not Version(megatron.core.__version__) >= Version("0.16")': OLD,
    'Version("0.16.0") <= Version(megatron.core.__version__)': NEW,
    'Version("0.13") <= Version(megatron.core.__version__) < Version("0.16")': ">=0.13.0,<=0.15.3",
    'version.parse(megatron.core.__version__).base_version == "0.12.1"': "==0.12.1",
    "version.parse(megatron.core.__version__).release >= (0, 16)": NEW,
    "version.parse(megatron.core.__version__).minor < 16": OLD,
    'megatron.core.__version__ >= "0.16.0"': NEW,
    'megatron.core.__version__.startswith("0.12.")': "<=0.12.3",
    'megatron.core.__version__ in ("0.12.0", "0.12.1")': "<=0.12.1",
    "int(megatron.core.__version__.split('.')[1]) >= 16": NEW,
    "tuple(int(x) for x in megatron.core.__version__.split('.')[:2]) >= (0, 16)": NEW,
    "tuple(map(int, megatron.core.__version__.split('.')[:2])) < (0, 16)": OLD,
    "[int(x) for x in megatron.core.__version__.split('.')] >= [0, 16, 0]": NEW,
    "megatron.core.package_info.MINOR >= 16": NEW,
    "megatron.core.package_info.VERSION[:2] < (0, 16)": OLD,
    'Version(importlib.metadata.version("megatron-core")) >= Version("0.16")': NEW,
    'Version(getattr(megatron.core, "__version__", "0.0")) >= Version("0.16")': NEW,
    'hasattr(TopKRouter, "is_aux_loss_enabled")': ">=0.14.0",
    'not hasattr(megatron.core.utils, "get_tensor_model_parallel_group_if_none")': "<=0.12.3",
    'hasattr(TopKRouter, "_of_a_release_to_come")': ">0.19.2",
    'getattr(TopKRouter, "is_aux_loss_enabled", None) is not None': ">=0.14.0",
    'importlib.util.find_spec("megatron.core.transformer.moe.router_replay") is None': OLD,
    '"output_processor" in inspect.signature(GPTModel.forward).parameters': ">=0.18.0",
    '"padding_mask" not in inspect.signature(GPTModel.forward).parameters.keys()': OLD,
    'inspect.signature(GPTModel.forward).parameters.get("padding_mask") is not None': NEW,
    '{"output_processor"}.issubset(inspect.signature(GPTModel.forward).parameters)': ">=0.18.0",
    '"padding_mask" in inspect.getfullargspec(GPTModel.forward).args': NEW,
    '"padding_mask" in GPTModel.forward.__code__.co_varnames': NEW,
    '"of_a_release_to_come" in inspect.signature(GPTModel.forward).parameters': ">0.19.2",
    "False": "none",
    "Version(megatron.core.__version__) >= Version('0.20')": ">0.19.2",
    "Version(megatron.core.__version__) >= Version('0.13') and Version(megatron.core.__version__) < Version('0.14')": (
        ">=0.13.0,<=0.13.1"
    ),
    "Version(megatron.core.__version__) < Version('0.13') or Version(megatron.core.__version__) > Version('0.19')": (
        "<=0.12.3 or >=0.19.2"
    ),
    "('0.16.0' if Version(megatron.core.__version__) >= Version('0.13') else '') != ''": ">=0.13.0",
}


@pytest.mark.parametrize("test", TESTS)
def test_spellings(test: str) -> None:
    assert str(guarded(f"if {test}:\n    GPTModel.forward = f").live) == TESTS[test]


UNDECIDED = {
    "use_x": ("any", ("only if `use_x`",)),
    "not use_x": ("any", ("only if not `use_x`",)),
    "not (use_x == 1)": ("any", ("only if `use_x != 1`",)),
    "use_x or not use_y": ("any", ("only if (`use_x` or not `use_y`)",)),
    "not (use_x or use_y in z)": ("any", ("only if not `use_x` and `use_y not in z`",)),
    "use_x or isinstance(use_x, int)": ("any", ("depends on `use_x`",)),  # that is not all
    "use_x or (use_y and use_z)": ("any", ("depends on `use_x`, `use_y`, `use_z`",)),  # not on all of them
    "use_x and isinstance(use_x, int)": ("any", ("only if `use_x`",)),
    "use_x and megatron.core.__version__ >= '0.16'": (NEW, ("only if `use_x`",)),
    "use_x or megatron.core.__version__ >= '0.16'": ("any", ("depends on `use_x`",)),  # not on every release
    "Version(torch.__version__) >= Version('2.8')": (
        "any",
        ("only if `Version(torch.__version__) >= Version('2.8')`",),
    ),
    "use_x and megatron.core.__version__ >= '1'": ("none", ()),
    "sys.version_info >= (3, 13)": ("any", ("only if `sys.version_info >= (3, 13)`",)),
    "megatron.core.__version__.frobnicate() > 3": ("any", ("only if `megatron.core.__version__.frobnicate() > 3`",)),
    "int('x') > 3": ("any", ("only if `int('x') > 3`",)),
    "isinstance(use_x, int)": ("any", ()),
    "use_x is None": ("any", ()),
}
LEAVING = {
    "if use_x: return": "only if not `use_x`",
    "if not use_x: return": "only if `use_x`",
    "if use_x:\n        if use_y: return": "depends on `use_x`",
    "if use_x: return\n    else: print()": "only if not `use_x`",
    "if use_x: return\n    elif use_y: return": "depends on `use_x`",
    "if use_x: print()\n    else: return": "depends on `use_x`",
}


@pytest.mark.parametrize("statement", LEAVING)
def test_which_way_it_has_to_be_where_a_statement_above_leaves(statement: str) -> None:
    live = guarded(f"def install(use_x, use_y):\n    {statement}\n    GPTModel.forward = f").live
    assert live.depends == (LEAVING[statement],)


@pytest.mark.parametrize("test", UNDECIDED)
def test_what_cannot_be_decided_is_said(test: str) -> None:
    live = guarded(f"def install(use_x):\n    if {test}:\n        GPTModel.forward = f").live
    assert (str(live), live.depends) == UNDECIDED[test]


def test_a_mark_of_ones_own_on_what_no_wheel_has_asks_for_no_release() -> None:
    mark = "import megatron.legacy.fused_kernels as fk\nif not getattr(fk.load, '_mine', False):\n    fk.load = f"
    assert str(guarded(mark).live) == "any"


OLDER = "Version(megatron.core.__version__) < Version('0.16')"
PLACES = {
    f"if {OLDER}:\n    pass\nelse:\n    GPTModel.forward = f": NEW,
    f"if use_x:\n    pass\nelif {OLDER}:\n    pass\nelse:\n    GPTModel.forward = f": NEW,
    f"def g():\n    if {OLDER}:\n        return\n    GPTModel.forward = f": NEW,
    f"def g():\n    if not {OLDER}:\n        raise RuntimeError\n    GPTModel.forward = f": OLD,
    f"def g():\n    if {OLDER}:\n        print()\n    else:\n        return\n    GPTModel.forward = f": OLD,
    f"def g():\n    if {OLDER}:\n        print()\n    GPTModel.forward = f": "any",
    f"def g():\n    if use_x:\n        if {OLDER}:\n            return\n    GPTModel.forward = f": "any",
    f"def g():\n    if {OLDER}:\n        if use_x:\n            return\n        return\n    GPTModel.forward = f": NEW,
    f"def g():\n    with lock:\n        if {OLDER}:\n            return\n    GPTModel.forward = f": NEW,
    f"def g():\n    assert not {OLDER}\n    GPTModel.forward = f": NEW,
    f"def g():\n    if {OLDER}:\n        sys.exit(1)\n    GPTModel.forward = f": NEW,
    f"for x in y:\n    if {OLDER}:\n        continue\n    GPTModel.forward = f": NEW,
    f"if {OLDER}:\n    def g():\n        GPTModel.forward = f": OLD,
    f"if {OLDER}:\n    class C:\n        def g(self):\n            GPTModel.forward = f": OLD,
    f"GPTModel.forward = f if {OLDER} else GPTModel.forward": OLD,
    f"GPTModel.forward = GPTModel.forward if {OLDER} else f": NEW,
    f"{OLDER} and setattr(GPTModel, 'forward', f)": OLD,
    f"{OLDER} or setattr(GPTModel, 'forward', f)": NEW,
    f"setattr(GPTModel, 'forward', f) if {OLDER} else None": OLD,
    f"None if {OLDER} else setattr(GPTModel, 'forward', f)": NEW,
    f"if {OLDER}:\n    raise ImportError\nGPTModel.forward = f": NEW,
}


@pytest.mark.parametrize("source", PLACES)
def test_places(source: str) -> None:
    assert str(guarded(source).live) == PLACES[source]


NAMES = {
    f"old = {OLDER}\nif old:": OLD,
    f"old = {OLDER}\nnew = not old\nif new:": NEW,
    "V = Version(megatron.core.__version__)\nif V >= Version('0.16'):": NEW,
    f"old = True\nif not {OLDER}:\n    old = False\nif old:": OLD,
    f"old = use_x\nif {OLDER}:\n    old = True\nif old:": "any",
    "seen = []\nif seen:": "any",
    "seen = set()\nif seen:": "any",
    "count = 0\ncount += 1\nif count:": "any",
    f"old = {OLDER}\nold = use_x\nif old:": "any",
    "def recent():\n    return megatron.core.__version__ >= '0.16'\nif recent():": NEW,
    "def recent(than):\n    return Version(megatron.core.__version__) >= Version(than)\nif recent('0.16'):": NEW,
    "def recent(than='0.16'):\n    return Version(megatron.core.__version__) >= Version(than)\nif recent():": NEW,
    "def recent(*, than):\n    return megatron.core.__version__ >= than\nif recent(than='0.16'):": NEW,
    "def of(name):\n    try:\n        return importlib.metadata.version(name)\n    except Exception:\n"
    "        return '0'\n"
    "if of('megatron.core') >= '0.16':": NEW,
    f"def mode():\n    if {OLDER}:\n        return 'old'\n    return 'new'\nif mode() == 'old':": OLD,
    "def a():\n    return b()\ndef b():\n    return a()\nif a():": "any",
    "try:\n    from megatron.core.transformer.moe.router_replay import RouterReplay\nexcept ImportError:\n"
    "    RouterReplay = None\nif RouterReplay is None:": OLD,
    "try:\n    from megatron.core.transformer.moe.router_replay import RouterReplay\n    HAS = True\n"
    "except ImportError:\n    HAS = False\nif HAS:": NEW,
    "try:\n    import megatron.core.transformer.moe.router_replay\n    HAS = True\nexcept Exception:\n    HAS = False\n"
    "if HAS:": NEW,
    "try:\n    import megatron.core.transformer.moe.router_replay\nexcept ImportError:\n    HAS = False\nelse:\n"
    "    HAS = True\nif HAS:": NEW,
    "try:\n    TopKRouter.is_aux_loss_enabled\n    HAS = True\nexcept AttributeError:\n"
    "    HAS = False\nif HAS:": ">=0.14.0",
    "try:\n    importlib.import_module('megatron.core.transformer.moe.router_replay')\n    HAS = True\n"
    "except ImportError:\n    HAS = False\nif HAS:": NEW,
    "try:\n    import transformer_engine\n    HAS = True\nexcept ImportError:\n    HAS = False\nif HAS:": "any",
}


@pytest.mark.parametrize("source", NAMES)
def test_names_that_hold_the_answer(source: str) -> None:
    assert str(guarded(f"{source}\n    GPTModel.forward = f").live) == NAMES[source]


def test_what_is_compiled_may_be_there_on_every_release() -> None:
    """The wheels hold it without a source."""
    lines = "try:\n    import megatron.core.datasets.helpers_cpp\nexcept ImportError:\n    {}\n{}GPTModel.forward = f\n"
    assert str(guarded(lines.format("sys.exit()", "")).live) == "any"
    assert str(guarded(lines.format("pass", "else:\n    ")).live) == "any"


class TestNamesThatAreNotThereYet:
    def test_put_into_every_module_that_is_loaded(self) -> None:
        finding = guarded(
            """
            for module in list(sys.modules.values()):
                if vars(module).get("hadamard_transform", 1) is None:
                    vars(module)["hadamard_transform"] = f
            """
        )
        assert str(finding.live) == NEW

    def test_an_object_known_by_what_is_done_to_it(self) -> None:
        """`combine` of a MoELayer took two arguments before 0.16; 0.12 has no such method, and what then is unknown."""
        (finding,) = found_in(
            f"{HEAD}import types\ndef install(mlp):\n    fuses = len(inspect.signature(mlp.combine).parameters) >= 2\n"
            "    if not fuses:\n        mlp.postprocess = types.MethodType(f, mlp)\n",
            possible=True,
        )
        assert finding.target.endswith(".MoELayer.postprocess")
        assert str(finding.live) == "<=0.12.3 or >=0.16.0"


def test_what_stands_behind_a_statement_of_several_lines_is_not_reached() -> None:
    text = "def install():\n    return list(\n        []\n    )\n    GPTModel.forward = f\n"
    assert "never runs" in guarded(text).message


@pytest.mark.parametrize("above, live", [
    ("from megatron.core import utils\nutils.nowhere = f", ">0.19.2"),  # another module
    ("router.nowhere = f", "any"),
    ("from somewhere import it\nit.nowhere = f", "any"),  # whatever that is
])  # fmt: skip
def test_a_name_that_the_file_puts_on_another_module_is_not_on_this_one(above: str, live: str) -> None:
    text = f"{HEAD}from megatron.core.transformer.moe import router\n{above}\n"
    text += "if hasattr(router, 'nowhere'):\n    router.nowhere = f\n"
    assert str(found_in(text)[-1].live) == live
