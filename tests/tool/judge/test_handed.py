"""Functions that are handed to a Megatron of a few lines, and its options that are read: every pair, and what is told.

The answers stand in `handed.txt`; after a change that is meant, run this once with `APPROVE=1` and read the diff.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from mcore_unpatch.library.build import build
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

SAID = Path(__file__).with_name("handed.txt")
CONFIG = "from dataclasses import dataclass\n@dataclass\nclass TransformerConfig:\n    size: int = 1\n"
OLD = """
def same(step): return step(1)
def more(step): return step(1)
def fewer(step): return step(1, 2)
def named(step): return step(1)
def renamed(step): return step(1, loss=2)
def behind(step, config): return step(1)
def off(step, config): return step(1)
def none(step, config): return step(1)
def on(step, config): return step(1)
def asked(step, flag=False): return step(1)
def unpacked(step):
    a, b = step(1)
    return a
def either(step, x):
    if x: return step(1)
    return step(1, 2)
def second(x, step): return step(x)
def through(step): return same(step)
def fresh(step): return step
def given(step=None): return step(1)
def idle(step): return step(1)
"""
NEW = """
def same(step): return step(1)
def more(step): return step(1, 2)
def fewer(step): return step(1)
def named(step): return step(1, loss=2)
def renamed(step): return step(1, losses=2)
def behind(step, config):
    if config.size: return step(1, 2)
def off(step, config):
    if config.fresh: return step(1, 2)
def none(step, config):
    if config.maybe: return step(1, 2)
def on(step, config):
    if config.always: return step(1, 2)
def asked(step, flag=False):
    if flag: return step(1, 2)
def unpacked(step):
    a, b, c = step(1)
    return a
def either(step, x):
    if x: return step(1, 2, 3)
    return step(1, 2, 3, 4)
def second(step, x): return step(x, 1)
def through(step): return more(step)
def fresh(step): return step(1, 2)
def given(step=None):
    if step is not None: return step(1, 2)
def idle(step): return step
"""
CALLBACKS = {
    "lambda x: x": "",
    "lambda x, y: x": "",
    "lambda *x: x": "",
    "lambda: 1": "",
    "one": "def one(x): return x\n",
    "two": "def two(x, y): return x, y\n",
    "pair": "def pair(x): return x, x\n",
    "triple": "def triple(x, y=1): return x, x, y\n",
    "word": "def word(x, *, loss): return x\n",
    "words": "def words(x, **more): return x\n",
    "either": "def either(x):\n    if x: return x, x\n    return x, x, x\n",
    "decorated": "@wraps\ndef decorated(x): return x\n",
    "made()": "def made():\n    def inner(x): return x\n    def other(x, y, z): return x\n    return inner\n",
    "made_by(3)": "def made_by(n):\n    @wraps\n    def inner(x): return x\n    return inner\n",
    "partial(one, 1)": "from functools import partial\ndef one(x): return x\n",
    "holder.one": "class Holder:\n    def one(self, x): return x\nholder = Holder()\n",
    "Holder.one": "class Holder:\n    def one(self, x): return x\n",
    "Holder": "class Holder:\n    def __init__(self, x): ...\n",
    "table[0]": "",
    "unknown": "",
}
READ = {
    "at once": "get_args().dropped_option",
    "of a variable": "args = get_args()\nprint(args.dropped_option)",
    "in a function": "def f():\n    args = get_args()\n    return args.dropped_option",
    "with a match": "get_args().many_sizes",
    "kept": "get_args().kept",
    "asked for": "args = get_args()\nif hasattr(args, 'dropped_option'):\n    args.dropped_option",
    "asked for with a default": "args = get_args()\ngetattr(args, 'dropped_option', 1), args.dropped_option",
    "asked for by another": "args = get_args()\nsetattr(args, 'dropped_option', 1), args.dropped_option",
    "asked for by a method": "args = get_args()\nmy.hasattr(args, 'dropped_option'), args.dropped_option",
    "asked for by a name": "args = get_args()\nhasattr(args, dropped_option), args.dropped_option",
    "set": "args = get_args()\nargs.dropped_option = 1",
    "of two": "args = get_args()\nargs = other()\nargs.dropped_option",
    "of another": "args = parse()\nargs.dropped_option",
    "of a call of a call": "get_args()().dropped_option",
    "of what it is": "get_args.dropped_option",
    "caught": "try:\n    get_args().dropped_option\nexcept AttributeError:\n    pass",
}


def test_all_that_is_handed_over_and_read() -> None:
    said = "".join(f"{line}\n" for line in _told())
    if "APPROVE" in os.environ:
        SAID.write_text(said)
    assert said.splitlines() == SAID.read_text().splitlines(), "if this is meant: run it once with APPROVE=1"


def _told() -> Iterator[str]:
    codes: dict[str, str] = {}
    models, steps = (
        [_release(one) for one in ("0.30.0", "0.31.0")],
        [line.split("(")[0].removeprefix("def ") for line in OLD.splitlines() if line[:3] == "def"],
    )
    for name in steps:
        for callback, head in CALLBACKS.items():
            given = f"x, {callback}" if name == "second" else callback
            more = ", config" if name in ("behind", "off", "none", "on") else ", x" if name == "either" else ""
            codes[f"{name}({callback})"] = f"from megatron.core import utils\n{head}utils.{name}({given}{more})\n"
        codes[f"{name}(step=one)"] = f"from megatron.core import utils\ndef one(x): return x\nutils.{name}(step=one)\n"
        own = f"class A:\n    def one(self, x): return x\n    def run(self): utils.{name}(self.one)\n"
        codes[f"{name}(self.one)"] = f"from megatron.core import utils\n{own}"
    for given in ("one, True", "one, flag=True", "one, **flags"):
        codes[f"asked({given})"] = f"from megatron.core import utils\ndef one(x): return x\nutils.asked({given})\n"
    yield from _uses(codes, *models)
    for place in ("megatron.training", "megatron.training.global_vars", "mine"):
        for what, code in READ.items():  # each by itself: an option that one file sets is there for all
            yield from _uses({f"{place}, {what}": f"from {place} import get_args\n{code}\n"}, *models)


def _uses(codes: dict[str, str], *models: Model) -> Iterator[str]:
    files = {f"{number:04}.py": code.encode() for number, code in enumerate(codes.values())}
    names = dict(zip(files, codes, strict=True))
    project = Project(files.__contains__, files.__getitem__)
    for one in uses_of(list(files), project, *models).affected:
        what = f"{one.kind} {one.exception}: {one.text} {one.trigger} {one.instead}"
        yield f"{names[one.path]}: {' '.join(what.replace('megatron-core 0.31.0', 'it').split())}"


def _release(label: str) -> Model:
    is_old = label == "0.30.0"
    more = "" if is_old else "    fresh: bool = False\n    maybe: int = None\n    always: bool = True\n"
    options = ("--kept", "--dropped-option", "--many-sizes") if is_old else ("--kept", "--many-size")
    parser = "".join(f"    parser.add_argument('{option}', type=int)\n" for option in options)
    files = {
        "core/__init__.py": "",
        "core/utils.py": OLD if is_old else NEW,
        "core/transformer/__init__.py": "",
        "core/transformer/transformer_config.py": CONFIG + more,
        "training/__init__.py": "from .global_vars import get_args\n",
        "training/global_vars.py": "def get_args(): return _ARGS\n",
        "training/arguments.py": f"import argparse\ndef add(parser):\n{parser}    return parser\n",
    }
    return build(LIBRARY, label, [(f"megatron/{path}", text.encode()) for path, text in files.items()])
