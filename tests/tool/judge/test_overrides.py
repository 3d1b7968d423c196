"""Methods of subclasses between two releases of a few lines: what Megatron's own calls of them become."""

import re

from checking import small_release

from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

OLDER = """
from abc import ABC, abstractmethod
class Worker(ABC):
    def __init__(self, a): pass
    def run(self):
        self.start(1)
        one, two = self.pair(1)
        self.take(1)
        self.quiet()
        self.odd(1)
        self.wide(1)
    def start(self, x): return x
    def pair(self, x): return x, x
    def take(self, x): return x
    def quiet(self): pass
    def odd(self, x): pass
    def wide(self, x): pass
    def gone(self): pass
    def lost(self): pass
    def user(self): self.gone()
    def later(self): pass
    @abstractmethod
    def always(self): pass
    value = 3
class Other(ABC):
    def go(self, worker: Worker):
        worker.handed(1)
    def keep(self): pass
"""
NEWER = """
from abc import ABC, abstractmethod
class Worker(ABC):
    def __init__(self, a, b): pass
    def run(self):
        self.start(1, 2)
        one, two, three = self.pair(1)
        self.take(1, fresh=2)
        self.quiet()
        self.odd(1, flag=True)
        self.wide(1, 2, 3)
        self.came(1)
    def start(self, x, y): return x
    def pair(self, x): return x, x, x
    def take(self, x, fresh): return x
    def quiet(self): pass
    def odd(self, x, flag): pass
    def wide(self, x, y, z): pass
    def came(self, x): pass
    def unused(self): pass
    def user(self): pass
    @abstractmethod
    def later(self): pass
    @abstractmethod
    def always(self): pass
    value = 3
    def handed(self, x): pass
class Other(ABC):
    def go(self, worker: Worker):
        worker.handed(1)
    def keep(self): pass
    @abstractmethod
    def keep_two(self): pass
    @abstractmethod
    def keep_three(self): pass
"""
SAID = {
    "TypeError: `Worker.run` passes 2 values by position, where 1 fit, which `Mine.start` does not take": [
        "def start(self, x): pass",
        "def start(self, x, **rest): pass",
        "@staticmethod\ndef start(x): pass",
        "@classmethod\ndef start(cls, x): pass",
        "@torch.no_grad()\ndef start(self, x): pass",
        "@override\ndef start(self, x): pass",
        "async def start(self, x): pass",
    ],
    "": [
        "def start(self, x, y): pass",
        "def start(self, x, y=0): pass",
        "def start(self, *args): pass",
        "def start(self): pass",
        "@staticmethod\ndef start(x, y): pass",
        "@cached\ndef start(self, x): pass",
        "@make()[0]\ndef start(self, x): pass",
        "def pair(self, x): return x, x, x",
        "def pair(self, x): return x",
        "def pair(self, x): return 1, 2, 3, 4",
        "def pair(self, x):\n    if x: return 1, 2\n    return 1, 2, 3",
        "def take(self, x, fresh): pass",
        "def take(self, x, **rest): return rest",
        'def take(self, x, **rest): return rest["fresh"]',
        "def take(self, x, **rest): return super().take(x, **rest)",
        "def quiet(self): pass",
        "def quiet(self, x): pass",
        "def gone(self): pass",
        "def lost(self): pass",
        "def unused(self): pass",
        "def handed(self): pass",
        "def handed(self, x): pass",
        "def value(self): pass",
        "def __init__(self, a): pass",
        "def __len__(self, a): pass",
        "def run(self): pass",
        "def mine(self): pass",
        "def run(self): pass\ndef start(self, x): pass",
        "class Mine(utils.Worker):\n    def later(self): pass",
        "class Mine(utils.Worker):\n    later = None",
        "class Mine(utils.Worker):\n    @abstractmethod\n    def later(self): pass",
        "class Mine(utils.Worker):\n    @abstractmethod\n    def own(self): pass",
        "class Mine(Mixin, utils.Worker): pass",
        "class Mine(Base): pass",
        "class Mine(Base):\n    def start(self, x): pass",
        "class Mine(given()): pass",
    ],
    "ValueError: `Mine.pair` returns 2 values where `Worker.run` unpacks 3": [
        "def pair(self, x): return x, x",
        "def pair(self, x):\n    if x: return 1, 2\n    return 3, 4",
    ],
    "TypeError: `Worker.run` passes `fresh`, which `Mine.take` does not take": [
        "def take(self, x): pass",
    ],
    "changes: `Mine.take` drops `fresh` in `**rest`, which `Worker.run` passes": [
        "def take(self, x, **rest): pass",
        'def take(self, x, **rest): return rest.get("old")',
    ],
    "changes: `Mine.take` drops `fresh` in `**kwargs`, which `Worker.run` passes": [
        "def take(self, *args, **kwargs): pass",
    ],
    "TypeError: `Worker.run` passes `flag`, which `Mine.odd` does not take": [
        "def odd(self, x): pass",
    ],
    "TypeError: `Worker.run` passes 3 values by position, where 1 fit, which `Mine.wide` does not take": [
        "def wide(self, x, *, y=0): pass",
    ],
    "TypeError: `Mine.came` overrides `Worker.came`, which is new and which `Worker.run` calls: "
    "it passes 1 value by position, where 0 fit, which yours does not take": [
        "def came(self): pass",
    ],
    "changes: `Mine.came` overrides `Worker.came`, which is new and which `Worker.run` calls": [
        "def came(self, x): pass",
        "@cached\ndef came(self): pass",
    ],
    "TypeError: `later` of `Worker` is abstract, and `Mine` lacks it": [
        "class Mine(utils.Worker): pass",
        "class Mine(utils.Worker, metaclass=Meta): pass",
    ],
    "TypeError: `keep_three`, `keep_two` of `Other` are abstract, and `Mine` lacks them": [
        "class Mine(utils.Other): pass",
    ],
    "TypeError: `keep_three` of `Other` is abstract, and `Mine` lacks it": [
        "class Mine(utils.Other):\n    def keep_two(self): pass",
    ],
    "AttributeError: `utils.Nothing` is not in megatron-core 0.31.0": [
        "class Mine(utils.Nothing): pass",
    ],
}


HEAD = """\
from abc import abstractmethod
import torch
from megatron.core import utils
class Base(utils.Worker):
    def run(self): pass
    def later(self): pass
"""


def test_what_is_said_of_subclasses() -> None:
    """A file for each: a class, or a method of one that has all that is abstract."""
    models = [small_release(label, text) for label, text in (("0.30.0", OLDER), ("0.31.0", NEWER))]
    expected = {case: sentence for sentence, cases in SAID.items() for case in cases}
    files: dict[str, bytes] = {}
    for case in expected:
        inner = "".join(f"    {line}\n" for line in case.splitlines())
        text = case if case.startswith("class ") else f"class Mine(utils.Worker):\n    def later(self): pass\n{inner}"
        files[f"{len(files):03}.py"] = f"{HEAD}{text}\n".encode()
    said = dict.fromkeys(expected, "")
    for told in uses_of(list(files), Project(files.__contains__, files.__getitem__), *models).affected:
        case = list(expected)[int(told.path.removesuffix(".py"))]
        said[case] += f"{told.exception or told.kind}: {re.sub(' (of|on) megatron-core 0.31.0', '', told.text)}"
    assert said == expected
