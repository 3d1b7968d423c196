"""A Megatron of a few lines, without torch: each way to patch it is tried in a fork, in milliseconds."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checking import write_files

# Names that the tool knows from the real one, for what asks no more of it than to be patched there.
BY_NAME = {
    "megatron/core/__init__.py": "__version__ = '0.19.2'\n",
    "megatron/core/models/__init__.py": "",
    "megatron/core/models/gpt/__init__.py": "",
    "megatron/core/models/gpt/gpt_model.py": """
        class GPTModel:
            def _preprocess(self):
                return self

            def forward(self):
                return self
    """,
    "megatron/core/parallel_state.py": """
        def get_tensor_model_parallel_rank():
            return 0
    """,
}
LIBRARY = {
    "megatron/core/__init__.py": """
        __version__ = "0.19.2+abc"
    """,
    "megatron/core/lines.py": """
        def length(line):
            return len(line)

        def width(line):
            return 1

        class Pen:
            def draw(self):
                return length(self)
    """,
    "megatron/core/shapes.py": """
        import functools
        from collections import OrderedDict
        from dataclasses import dataclass, field

        from megatron.core.lines import Pen, length

        def kept(function):
            @functools.wraps(function)
            def wrapper(*args):
                return function(*args)
            return wrapper

        @kept
        def area(shape):
            return shape

        def plain(shape):
            return shape

        try:
            from nobody import fast
        except ImportError:
            def fast(shape):
                return shape

        try:
            import nobody

            def quick(shape):
                return shape
        except ImportError:
            quick = None

        if __name__ != "__main__":
            from megatron.core.lines import width
        else:
            def width(line):
                return 2

        @dataclass
        class Grid:
            sizes: list = field(default_factory=lambda: [])

        class Hidden:
            def __init_(self):
                pass

        switched = plain
        limit = 3

        @dataclass
        class Point:
            x: int = 0

        class Shape:
            class Edge:
                def turn(self):
                    return self

            color = property(lambda self: "red")

            @staticmethod
            def unit():
                return 1

            @functools.cache
            def sides(self):
                return 4

            def forward(self, value):
                return value

            def backward(self, value):
                return value

        Form = Shape
    """,
    "megatron/core/engine.py": """
        from unittest.mock import MagicMock

        try:
            from nobody import Linear
        except ImportError:
            Linear = MagicMock()

        class Wide(Linear):
            def forward(self):
                return self

        class Narrow:
            def forward(self):
                return self

        def run():
            return Narrow()
    """,
    "megatron/core/model.py": """
        from megatron.core.lines import Pen

        class Module:
            @property
            def _modules(self):
                return {name: held for name, held in vars(self).items() if held is None or isinstance(held, Module)}

            def named_modules(self, prefix=""):
                yield prefix, self
                for name, held in self._modules.items():
                    if held is not None:
                        yield from held.named_modules(f"{prefix}.{name}".strip("."))

            def forward(self, value):
                return value

        class Layer(Module):
            pass

        class Other(Module):
            pass

        def made():
            return Other()

        class Model(Module):
            def __init__(self, layer=None, fast=False):
                kind = Layer if fast else Other
                self.first = Layer()
                self.either = Layer() if fast else Other()
                self.chosen = kind()
                self.given = layer or Layer()
                self.made = made()
                self.later = None
                if fast:
                    self.later = Layer()
    """,
    "megatron/core/users.py": """
        from megatron.core.shapes import Shape, area, plain
    """,
    "ours/__init__.py": "",
    "ours/patches.py": """
        import functools

        def mine(*args):
            return args

        def again(*args):
            return args

        class Shape:
            def forward(self, value):
                return value

        def around(function):
            @functools.wraps(function)
            def wrapped(*args):
                return function(*args)
            return wrapped

        def outside(function):
            def wrapped_again(*args):
                return function(*args)
            return wrapped_again

        def hidden():
            later = None
            def never_filled():
                return unset
            if later:
                unset = 1
            return never_filled

        def install():
            from megatron.core import shapes
            shapes.Shape.forward = mine

        def install_by_name(name):
            from megatron.core import shapes
            setattr(shapes.Shape, name, again)

        class Data:
            pass

        def holding_each_other():
            first, second = Callable(mine), Callable(mine)
            first.fn, second.fn = second, first
            return first

        def install_data():
            from megatron.core import shapes
            shapes.limit = Data()

        def put_back(original):
            from megatron.core import shapes
            shapes.Shape.forward = original

        def reads():
            from megatron.core import shapes
            return shapes.Shape.forward

        class Holder:
            def __init__(self, name, function):
                vars(self)[name] = function
            def __call__(self, *args):
                return args

        class Opaque:
            __slots__ = ("inner",)
            def __call__(self, *args):
                return args

        def removes():
            from megatron.core import shapes
            del shapes.Shape.backward

        def install_on_the_type(name):
            from megatron.core import shapes
            type.__setattr__(shapes.Shape, name, mine)

        def yields():
            from megatron.core import shapes
            shapes.Shape.forward = again
            yield 1

        class Callable:
            def __init__(self, fn):
                self.fn = fn
            def __call__(self, *args):
                return self.fn(*args)
    """,
    "ours/taken.py": """
        from megatron.core.shapes import plain
    """,
    "swapped.py": """
        from megatron.core.model import Layer, Module, Other

        class Mine(Layer):
            pass

        class Foreign(Module):
            def forward(self, value):
                return value

        def watches(module, args):
            return None
    """,
    "theirs.py": """
        from megatron.core.shapes import Shape, plain
    """,
}
_RUNS = """
import json, os, sys
from mcore_unpatch import audit
import functools, types
import megatron.core.lines as lines, megatron.core.shapes as shapes, megatron.core.users, megatron.core
import megatron.core.engine as engine
from ours import patches
answers = {}
for name, code in json.loads(sys.stdin.read()).items():
    reader, writer = os.pipe()
    if os.fork() == 0:
        scope = dict(globals(), said=None)
        try:
            exec(compile(code, name, "exec"), scope)
            text = json.dumps(scope["said"])
        except BaseException:
            import traceback
            text = json.dumps(traceback.format_exc())
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        answers[name] = json.loads(pipe.read())
    os.wait()
print(json.dumps(answers))
"""


def said_by(folder: Path, programs: Mapping[str, str]) -> dict[str, Any]:
    """What each program left in `said`: `shapes`, `lines`, `patches` and `audit` are imported, and it runs alone."""
    write_files(folder, LIBRARY)
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-P", "-c", _RUNS],
        input=json.dumps({name: textwrap.dedent(code) for name, code in programs.items()}),
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers
