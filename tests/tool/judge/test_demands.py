"""What code asks of Megatron: calls, parts of calls, names on the way, between two releases of a few lines."""

import pytest
from checking import found_in, small_release

from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

OLDER = """
from dataclasses import dataclass
from enum import Enum
def put(state, folder="", *, gone=None, kept=None): return 1, 2
def lost(): pass
def m0(): pass
def m1(): pass
def m2(): pass
def m3(): pass
def m4(): pass
def m5(): pass
def m6(): pass
def m7(): pass
def m8(): pass
def m9(): pass
def m10(): pass
def m11(): pass
class Kind(Enum):
    old = 1
    both = 2
@dataclass
class Config:
    size: int = 1
    gone: int = 2
@dataclass
class Sized:
    size: int = 1
    gone: int = 2
class Worker:
    config: Config
    def __init__(self, config: Config):
        self.config = config
    def run(self, a, b): pass
    def lost(self): pass
    @staticmethod
    def plain(a, b): pass
    @classmethod
    def made(cls, a, b): pass
    def loose(path, a=1, b=2): pass
"""
NEWER = """
from dataclasses import dataclass
from enum import Enum
def put(state, folder="", *, kept=None): return 1, 2, 3
class Kind(Enum):
    both = 2
@dataclass
class Config:
    size: int = 1
@dataclass
class Sized:
    needed: int
    size: int = 1
class Worker:
    config: Config
    def __init__(self, config: Config):
        self.config = config
    def run(self, a): pass
    @staticmethod
    def plain(a): pass
    @classmethod
    def made(cls, a): pass
    def loose(path, a=1): pass
"""
HEAD = """\
import copy, dataclasses, functools
from functools import partial
from unittest import mock
from megatron.core import utils
def passes(state, own=0, **rest): return utils.put(state, **rest)
def takes_out(state, **rest):
    rest.pop("gone")
    return utils.put(state, **rest)
def passes_none(state, **rest): return utils.put(state)
def made_of():
    made = {"gone": 1}
    return made
def made_in_two_ways(y):
    if y:
        return {"gone": 1}
    return {}
@dataclasses.dataclass
class Own(utils.Sized):
    own: int = 1
@dataclasses.dataclass
class Between(Own):
    needed: int = 2
@dataclasses.dataclass
class Below(Between):
    more: int = 3
"""
# Bodies of functions.
SAID = {
    "TypeError: the call of `put` passes `gone`, not taken": [
        "utils.put(x, gone=1)",
        'utils.put(x, "f", gone=1, kept=2)',
        'utils.put(x, **{"gone": 1})',
        'rest = {"gone": 1}\nutils.put(x, **rest)',
        'rest = {"gone": 1}\ny.pop("gone")\nutils.put(x, **rest)',
        'rest = {"gone": 1}\nprint(rest["gone"])\nutils.put(x, **rest)',
        "rest = dict(gone=1)\nutils.put(x, **rest)",
        'rest = {}\nrest["gone"] = 1\nutils.put(x, **rest)',
        'rest = {}\nrest |= {"gone": 1}\nutils.put(x, **rest)',
        'rest = {}\nrest.update({"gone": 1})\nutils.put(x, **rest)',
        "rest = {}\nrest.update(gone=1)\nutils.put(x, **rest)",
        "rest = dict(y, gone=1)\nutils.put(x, **rest)",
        'more = {"gone": 1}\nrest = {}\nrest.update(more)\nutils.put(x, **rest)',
        'more = {"gone": 1}\nrest = {**more}\nutils.put(x, **rest)',
        "utils.put(x, **made_of())",
        "rest = made_of()\nutils.put(x, **rest)",
        "rest = dict(made_of(), kept=1)\nutils.put(x, **rest)",
        "functools.partial(utils.put, gone=1)",
        'partial(utils.put, "s", gone=1)',
        "passes(x, gone=1)",
    ],
    "": [
        "utils.put(x, kept=1)",
        'utils.put(x, **{"kept": 1})',
        "utils.put(x, **{y: 1})",
        "utils.put(x, **{**y})",
        "utils.put(x, **y)",
        "utils.put(x, **made_in_two_ways(y))",
        'rest = {}\nutils.put(x, **rest)\nrest["gone"] = 1',
        "rest = made_of()\nrest.pop('gone')\nutils.put(x, **rest)",
        'rest = {"gone": 1}\nrest = {}\nutils.put(x, **rest)',
        'rest = {"gone": 1}\nrest.pop("gone")\nutils.put(x, **rest)',
        'rest = {"gone": 1}\nrest.clear()\nutils.put(x, **rest)',
        'rest = {"gone": 1}\nrest.popitem()\nutils.put(x, **rest)',
        'rest = {"gone": 1}\ndel rest["gone"]\nutils.put(x, **rest)',
        "rest = dict(kept=1)\nutils.put(x, **rest)",
        "rest = dict(**y)\nutils.put(x, **rest)",
        'rest = dict(gone=1)\nrest.pop("gone")\nutils.put(x, **rest)',
        "rest = list(gone=1)\nutils.put(x, **rest)",
        "rest = {}\nrest[y] = 1\nutils.put(x, **rest)",
        'rest = {}\ny["gone"] = 1\nutils.put(x, **rest)',
        'rest = {}\nif y:\n    rest["gone"] = 1\nutils.put(x, **rest)',
        'rest = {}\ny |= {"gone": 1}\nutils.put(x, **rest)',
        "rest = {}\nrest.update(**y)\nutils.put(x, **rest)",
        "rest = {}\nrest.update(y)\nutils.put(x, **rest)",
        "rest = {}\ny.update(gone=1)\nutils.put(x, **rest)",
        'rest = {}\nrest.setdefault("gone", 1)\nutils.put(x, **rest)',
        "a, b, c = utils.put(x)",
        "a, *b = utils.put(x)",
        "[a, b] = utils.put(x)",
        "a = utils.put(x)",
        "a, b = y = utils.put(x)",
        "functools.partial(utils.put, kept=1)",
        "functools.partial(gone=1)",
        "functools.partial(y, gone=1)",
        "dataclasses.replace(utils.Config(), size=1)",
        "dataclasses.replace(y, gone=1)",
        "dataclasses.replace(gone=1)",
        "passes(x, kept=1)",
        "passes(x, own=1)",
        "takes_out(x, gone=1)",
        "passes_none(x, gone=1)",
        "utils.Config(size=1)",
        "Own(needed=1)",
        "Below()",
        "Below(own=1, more=2, size=3)",
        "Below(needed=1)",
        "utils.Config().gone",
        "utils.Kind.both",
        'utils.Kind["old"]',
        'utils.Kind["both"]',
        "utils.Kind[y]",
        'utils.Kind["of_no_release"]',
        'utils.Config["old"]',
        "utils.Worker(x).lost()",
        "utils.Worker(x).run(1, 2)",
        "utils.Worker(x).run(1)",
        "utils.Worker.run(x, 1)",
        "utils.Worker.plain(1)",
        "utils.Worker.made(1)",
        "utils.Worker.loose(path=1)",
        "utils.Worker.loose(1, a=2)",
        "utils.Worker.loose(1, 2)",
        "utils.Worker(x).plain(1, 2)",
        "utils.Worker(x).made(1, 2)",
        "utils.Worker(x).config.gone",
        'getattr(utils, "lost", None)',
        'hasattr(utils, "lost")',
        'mock.patch.object(utils, "m2", create=True)',
        'mock.patch.object(utils, "m4", create=y)',
        'mock.patch.object(utils, "m5", **y)',
        "mock.patch.object(utils, y)",
        "mock.patch.object(utils)",
        'mock.frob.object(utils, "m6")',
        'monkeypatch.setattr(utils, "m7", y)',
        'monkeypatch.setattr(utils, "m8", y, raising=False)',
        'monkeypatch.setattr(utils, "m9", y, raising=True)',
        'y.setattr(utils, "m11", y)',
        "(lambda: utils.put)()(gone=1)",
    ],
    "ValueError: unpacks 2 values from `put`, which gives 3": [
        "a, b = utils.put(x)",
    ],
    "TypeError: the call of `Config` passes `gone`, not taken": [
        "dataclasses.replace(utils.Config(), gone=1)",
        "copy.replace(utils.Config(), gone=1)",
        "utils.Config(gone=1)",
    ],
    "TypeError: the call of `Sized` does not pass `needed`, which megatron-core 0.31.0 requires": [
        "utils.Sized()",
        "Own(own=1)",
    ],
    "changes: the first value passed to `Sized` is `needed`, and was `size`: other results, or an error": [
        "Own(1, own=2)",
        "Own(1, 2, 3)",
        "Below(1, 2, 3, 4)",
    ],
    "TypeError: the call of `Sized` passes `gone`, not taken": [
        "Below(own=1, gone=2)",
    ],
    "TypeError: the call of `Config` passes 2 values by position, where 1 fit, not taken": [
        "utils.Config(1, 2)",
    ],
    "AttributeError: `Config.gone` is gone": [
        "utils.Config.gone",
    ],
    "AttributeError: `Kind.old` is gone": [
        "utils.Kind.old",
    ],
    "TypeError: the call of `run` passes 2 values by position, where 1 fit, not taken": [
        "utils.Worker.run(x, 1, 2)",
    ],
    "TypeError: the call of `plain` passes 2 values by position, where 1 fit, not taken": [
        "utils.Worker.plain(1, 2)",
    ],
    "TypeError: the call of `loose` passes `b`, not taken": [
        "utils.Worker.loose(path=1, b=2)",
    ],
    "TypeError: the call of `made` passes 2 values by position, where 1 fit, not taken": [
        "utils.Worker.made(1, 2)",
    ],
    "AttributeError: `utils.lost` is gone": [
        'getattr(utils, "lost")',
        'getattr(utils, "lost")(x)',
        "utils.lost",
        "utils.lost()",
        "utils.lost().more",
        "x = utils.lost",
        "for a in utils.lost: pass",
        "with utils.lost: pass",
        "x[utils.lost]",
        "lambda: utils.lost",
        "@utils.lost\ndef inner(): pass",
        "def inner(a=utils.lost): pass",
        "class Inner(utils.lost): pass",
        "try: pass\nexcept utils.lost: pass",
        'f"{utils.lost}"',
        "await utils.lost()",
        "y if utils.lost else x",
        "utils.lost if y else x",
        "y and utils.lost",
    ],
    "AttributeError: `Worker.lost` is gone": [
        'getattr(utils.Worker, "lost")()',
    ],
    "AttributeError: `utils.m0` is gone": [
        'mock.patch.object(utils, "m0")',
    ],
    "AttributeError: `utils.m1` is gone": [
        'mock.patch.object(utils, "m1", y)',
    ],
    "AttributeError: `utils.m3` is gone": [
        'mock.patch.object(utils, "m3", create=False)',
    ],
    "AttributeError: `utils.m10` is gone": [
        'monkeypatch.delattr(utils, "m10")',
    ],
}
WORDS = (
    (", which megatron-core 0.31.0 does not take", ", not taken"),
    (" is not in megatron-core 0.31.0", " is gone"),
    (" on megatron-core 0.31.0", ""),
)


def test_what_is_said_of_code() -> None:
    """A file for each: what one sets, another may read."""
    models = [small_release(label, text) for label, text in (("0.30.0", OLDER), ("0.31.0", NEWER))]
    expected = {case: sentence for sentence, cases in SAID.items() for case in cases}
    files: dict[str, bytes] = {}
    for case in expected:
        inner = "".join(f"    {line}\n" for line in case.splitlines())
        files[f"{len(files):03}.py"] = f"{HEAD}async def case(x, y, monkeypatch):\n{inner}".encode()
    said = dict.fromkeys(expected, "")
    for told in uses_of(list(files), Project(files.__contains__, files.__getitem__), *models).affected:
        case = list(expected)[int(told.path.removesuffix(".py"))]
        text = told.text
        for words, short in WORDS:
            text = text.replace(words, short)
        said[case] += f"{told.exception or told.kind}: {text}"
    assert said == expected


@pytest.mark.parametrize(("given", "breaks"), [("config=config", False), ("config, nope=1", True)])
def test_super_of_the_patched_class_is_its_base(given: str, breaks: bool) -> None:
    takes = "config, vocab_size, max_sequence_length, **more"
    [finding] = found_in(
        f"""
        from megatron.core.models.common.embeddings.language_model_embedding import LanguageModelEmbedding as Theirs
        def init(self, {takes}):
            super(Theirs, self).__init__({given})
        Theirs.__init__ = init
        """,
        target=(0, 17),
    )
    said = "line 4: the call of `MegatronModule.__init__` passes `nope`"
    assert (said in finding.message, finding.effect == "breaks") == (breaks, breaks), finding.message
