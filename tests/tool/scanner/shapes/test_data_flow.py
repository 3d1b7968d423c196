"""Patches that data flow shows: through tables, namespaces, other names of `setattr`, helpers; and what is none."""

import pytest
from checking import CORE, GPT, Source, check_found, check_noop, found_in

HEAD = """\
import builtins, importlib, itertools, functools, sys, typing
from functools import partial
from typing import Any, cast
import megatron.core.utils as utils
import torch
from megatron.core.models.gpt import GPTModel
def ours(*args): ...
class Own: forward = None
own = Own()
"""
LOOP = """\
for path, fn in TABLE.items():
    module, name = path.rsplit(".", 1)
    setattr(importlib.import_module(module), name, fn)
"""
ROWS = """\
for p, fn in [("megatron.core.utils.divide", ours)]:
    m, _, n = p.rpartition(".")
    module = importlib.import_module(m)
"""
APPLY = """\
import importlib
def apply(table):
    for path, fn in table.items():
        module, name = path.rsplit(".", 1)
        setattr(importlib.import_module(module), name, fn)
"""
GIVEN = "apply({'megatron.core.utils.divide': ours})"
DIVIDE = f"{CORE}.utils.divide"

# The statement, what it replaces, and the same of something that is not Megatron's.
FORMS = {
    "a name for a namespace": ("n = vars(utils)\nn['divide'] = ours", DIVIDE, "n = vars(own)\nn['divide'] = ours"),
    "a name for __dict__": ("n = utils.__dict__\nn['divide'] = ours", DIVIDE, "n = own.__dict__\nn['divide'] = ours"),
    "names of a dict": (
        "NEW = {'divide': ours}\nfor n, f in NEW.items():\n    setattr(utils, n, f)",
        DIVIDE,
        "NEW = {'divide': ours}\nfor n, f in NEW.items():\n    setattr(own, n, f)",
    ),
    "update by a name": ("n = utils.__dict__\nn.update(divide=ours)", DIVIDE, "n = {}\nn.update(divide=ours)"),
    "__setitem__ by a name": (
        "n = vars(utils)\nn.__setitem__('divide', ours)",
        DIVIDE,
        "n = vars(own)\nn.__setitem__('divide', ours)",
    ),
    "|=": ("n = vars(utils)\nn |= {'divide': ours}", DIVIDE, "n = 1\nn |= 2"),
    "|= of __dict__": ("utils.__dict__ |= {'divide': ours}", DIVIDE, "own.__dict__ |= {'divide': ours}"),
    "_modules": (
        "m = GPTModel()\nm._modules['output_layer'] = torch.nn.Linear(1, 1)",
        f"{GPT}.output_layer",
        "own._modules['head'] = torch.nn.Linear(1, 1)",
    ),
    "add_module": (
        "m = GPTModel()\nm.add_module('output_layer', torch.nn.Linear(1, 1))",
        f"{GPT}.output_layer",
        "m = GPTModel()\nm.add_module('value_head', torch.nn.Linear(1, 1))",
    ),
    "register_module": (
        "m = GPTModel()\nm.register_module('output_layer', torch.nn.Linear(1, 1))",
        f"{GPT}.output_layer",
        "own.register_module('head', torch.nn.Linear(1, 1))",
    ),
    "set_submodule": (
        "m = GPTModel()\nm.set_submodule('output_layer', torch.nn.Linear(1, 1))",
        f"{GPT}.output_layer",
        "own.set_submodule('a.b', torch.nn.Linear(1, 1))",
    ),
    "cast": ("cast(Any, GPTModel).forward = ours", f"{GPT}.forward", "cast(Any, own).forward = ours"),
    "package=": (
        "importlib.import_module('.utils', package='megatron.core').divide = ours",
        DIVIDE,
        "importlib.import_module('.utils', package='torch').divide = ours",
    ),
    "package in place": (
        "importlib.import_module('..utils', 'megatron.core.models').divide = ours",
        DIVIDE,
        "importlib.import_module('.utils', 'torch.megatron.core').divide = ours",
    ),
    "setattr by a name": (
        "put = setattr\nput(GPTModel, 'forward', ours)",
        f"{GPT}.forward",
        "put(GPTModel, 'forward', ours)",
    ),
    "partial": (
        "put = partial(setattr, GPTModel)\nput('forward', ours)",
        f"{GPT}.forward",
        "put = partial(getattr, GPTModel)\nput('forward', ours)",
    ),
    "partial at once": (
        "functools.partial(setattr, GPTModel, 'forward')(ours)",
        f"{GPT}.forward",
        "functools.partial(setattr, own, 'forward')(ours)",
    ),
    "starmap": (
        "list(itertools.starmap(setattr, [(GPTModel, 'forward', ours)]))",
        f"{GPT}.forward",
        "list(itertools.starmap(getattr, [(GPTModel, 'forward', ours)]))",
    ),
    "map": (
        "list(map(setattr, [GPTModel], ['forward'], [ours]))",
        f"{GPT}.forward",
        "list(map(setattr, [own], ['forward'], [ours]))",
    ),
    "bound __setattr__": (
        "m = GPTModel()\nm.__setattr__('forward', ours)",
        f"{GPT}.forward",
        "own.__setattr__('forward', ours)",
    ),
    "del": ("del GPTModel.forward", f"{GPT}.forward", "del own.forward"),
    "delattr": ("delattr(GPTModel, 'forward')", f"{GPT}.forward", "delattr(own, 'forward')"),
    "del of a module": ("del utils.divide", DIVIDE, "m = GPTModel()\ndel m.forward"),
    "__module__": (
        "sys.modules[GPTModel.__module__].GPTModel = Own",
        GPT,
        "sys.modules[Own.__module__].GPTModel = Own",
    ),
    "__module__ of a function": (
        "sys.modules[utils.divide.__module__].divide = ours",
        DIVIDE,
        "sys.modules[ours.__module__].divide = ours",
    ),
    "add_module, by keywords": (
        "m = GPTModel()\nm.add_module(name='output_layer', module=torch.nn.Linear(1, 1))",
        f"{GPT}.output_layer",
        "m = GPTModel()\nm.add_module(name='value_head', module=torch.nn.Linear(1, 1))",
    ),
    "when_imported": (
        "@wrapt.when_imported('megatron.core.utils')\ndef hook(module):\n    module.divide = ours",
        DIVIDE,
        "@wrapt.when_imported('torch')\ndef hook(module):\n    module.divide = ours",
    ),
    "MonkeyPatch": (
        "import pytest\nmp = pytest.MonkeyPatch()\nmp.setattr(GPTModel, 'forward', ours)",
        f"{GPT}.forward",
        "import pytest\nmp = pytest.MonkeyPatch()\nmp.setattr(own, 'forward', ours)",
    ),
    "MonkeyPatch by name": (
        "from pytest import MonkeyPatch\nmp = MonkeyPatch()\nmp.setattr('megatron.core.utils.divide', ours)",
        DIVIDE,
        "from pytest import MonkeyPatch\nmp = MonkeyPatch()\nmp.setattr('torch.nn.Linear', ours)",
    ),
    "a table": (
        f"TABLE = {{'megatron.core.utils.divide': ours}}\n{LOOP}",
        DIVIDE,
        f"TABLE = {{'torch.nn.Linear.forward': ours}}\n{LOOP}",
    ),
    "for": (
        "for GPTModel.forward in [ours]: pass",
        f"{GPT}.forward",
        "for own.forward in [ours]: pass",
    ),
    "for in a comprehension": (
        "[0 for GPTModel.forward in [ours] if setattr]",
        f"{GPT}.forward",
        "[0 for own.forward in [ours] if setattr]",
    ),
    "with": (
        "with open('x') as (GPTModel.forward, y): pass",
        f"{GPT}.forward",
        "with open('x') as (own.forward, y): pass",
    ),
    "starred": (
        "a, *GPTModel.forward = ours, ours",
        f"{GPT}.forward",
        "a, *own.forward = ours, ours",
    ),
    "augmented": (
        "GPTModel.forward += ours",
        f"{GPT}.forward",
        "own.forward += ours",
    ),
    "assert": (
        "assert setattr(GPTModel, 'forward', ours) is None",
        f"{GPT}.forward",
        "assert setattr(own, 'forward', ours) is None",
    ),
    "default": (
        "def g(x=setattr(GPTModel, 'forward', ours)): ...",
        f"{GPT}.forward",
        "def g(x=setattr(own, 'forward', ours)): ...",
    ),
    "base class": (
        "class C(setattr(GPTModel, 'forward', ours) or Own): ...",
        f"{GPT}.forward",
        "class C(setattr(own, 'forward', ours) or Own): ...",
    ),
    "type parameter": (
        "def g[T: setattr(GPTModel, 'forward', ours)](x): ...",
        f"{GPT}.forward",
        "def g[T: setattr(own, 'forward', ours)](x): ...",
    ),
    "exec": (
        "exec('GPTModel.forward = ours')",
        f"{GPT}.forward",
        "exec('own.forward = ours')",
    ),
    "exec of a name": (
        "CODE = '''\nif ours:\n    GPTModel.forward = ours\n'''\nexec(compile(CODE, 'x', 'exec'))",
        f"{GPT}.forward",
        "CODE = 'own.forward = ours'\nexec(CODE)",
    ),
    "eval": (
        "eval('setattr(GPTModel, \"forward\", ours)')",
        f"{GPT}.forward",
        "eval('setattr(own, \"forward\", ours)')",
    ),
    "match": (
        "match GPTModel:\n    case m:\n        m.forward = ours",
        f"{GPT}.forward",
        "match own:\n    case m:\n        m.forward = ours",
    ),
    "globals": (
        "globals()['GPTModel'].forward = ours",
        f"{GPT}.forward",
        "globals()['own'].forward = ours",
    ),
    "handed over": (
        "atexit.register(setattr, GPTModel, 'forward', ours)",
        f"{GPT}.forward",
        "atexit.register(setattr, own, 'forward', ours)",
    ),
    "a thread": (
        "Thread(target=setattr, args=(GPTModel, 'forward', ours))",
        f"{GPT}.forward",
        "Thread(target=setattr, args=(own, 'forward', ours))",
    ),
    "star": (
        "row = (GPTModel, 'forward', ours)\nsetattr(*row)",
        f"{GPT}.forward",
        "row = (own, 'forward', ours)\nsetattr(*row)",
    ),
    "builtins by name": (
        "getattr(builtins, 'setattr')(GPTModel, 'forward', ours)",
        f"{GPT}.forward",
        "getattr(builtins, 'setattr')(own, 'forward', ours)",
    ),
    "the metaclass's": (
        "type(GPTModel).__setattr__(GPTModel, 'forward', ours)",
        f"{GPT}.forward",
        "type(Own).__setattr__(own, 'forward', ours)",
    ),
    "locate": (
        "pydoc.locate('megatron.core.models.gpt.GPTModel').forward = ours",
        f"{GPT}.forward",
        "pydoc.locate('torch.nn.Linear').forward = ours",
    ),
    "reload": (
        "importlib.reload(utils).divide = ours",
        DIVIDE,
        "importlib.reload(torch).divide = ours",
    ),
    "join": (
        "importlib.import_module('.'.join(['megatron', 'core', 'utils'])).divide = ours",
        DIVIDE,
        "importlib.import_module('.'.join(['torch', 'nn'])).divide = ours",
    ),
    "modules": (
        "from sys import modules as loaded\nloaded['megatron.core.utils'].divide = ours",
        DIVIDE,
        "from sys import modules as loaded\nloaded['torch'].divide = ours",
    ),
    "rows": (f"{ROWS}    setattr(module, n, fn)", DIVIDE, f"{ROWS}    setattr(own, 'seen', fn)"),
    "a table that a function is given": (f"{APPLY}{GIVEN}", DIVIDE, f"{APPLY.replace('setattr', 'getattr')}{GIVEN}"),
}


@pytest.mark.parametrize("form", FORMS)
def test_found(form: str) -> None:
    statement, target, _ = FORMS[form]
    assert target in {finding.target for finding in found_in(f"{HEAD}{statement}\n")}
    finding = check_found(f"{HEAD}{statement}\n", confidence="certain")
    assert finding.target == target


@pytest.mark.parametrize("form", FORMS)
def test_not_found(form: str) -> None:
    *_, other = FORMS[form]
    check_noop(f"{HEAD}{other}\n")


DEF = "def ours(): ...\n"
SEVERAL: dict[str, Source] = {
    "the table is elsewhere": {
        "table.py": f"{DEF}TABLE = {{'megatron.core.utils.divide': ours}}\n",
        "a.py": f"import importlib\nfrom table import TABLE\n{LOOP}",
    },
    "the loop is elsewhere": {"apply.py": APPLY, "a.py": f"from apply import apply\n{DEF}{GIVEN}\n"},
    "the assignment is elsewhere": {
        "put.py": "def put(o, v):\n    o.forward = v\n",
        "a.py": f"from put import put\n{HEAD}put(GPTModel, ours)\n",
    },
}


@pytest.mark.parametrize("name", SEVERAL)
def test_over_several_files(name: str) -> None:
    check_found(SEVERAL[name], path="a.py")


def test_a_deletion_that_takes_back_is_none() -> None:
    check_found(f"{HEAD}GPTModel.added = ours\ndel GPTModel.added\n")
    check_found(f"{HEAD}utils.divide = ours\ndel utils.divide\n", line=10)


FILLED = """\
rows = [(GPTModel, 'forward', ours)]
rows.append((utils, 'divide', ours))
{}.append((utils, 'is_float8tensor', ours))
"""


def test_rows_that_are_appended_are_rows() -> None:
    """To the list that the loop runs over, not to another."""
    both = f"{HEAD}{FILLED.format('others')}for owner, name, value in rows:\n    setattr(owner, name, value)\n"
    assert sorted(finding.target for finding in found_in(both)) == sorted([DIVIDE, f"{GPT}.forward"])
    three = f"{HEAD}{FILLED.format('rows')}for owner, name, value in rows:\n    setattr(owner, name, value)\n"
    assert len(found_in(three)) == 3
    check_noop(f"{HEAD}{FILLED.format('rows')}for owner, name, value in rows:\n    print(owner, name, value)\n")
