"""Methods that a function adds to Megatron's objects become functions that are called with the object, in all files."""

from __future__ import annotations

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options

UNSAFE = Options(unsafe_fixes=True)
ADDING = """
import types

from megatron.core.optimizer import ChainedOptimizer, DistributedOptimizer, MegatronOptimizer


def bind(optimizer: MegatronOptimizer):
    if isinstance(optimizer, ChainedOptimizer):
        for one in optimizer.chained_optimizers:
            bind(one)
        optimizer.to_host = types.MethodType(chained_to_host, optimizer)
    elif isinstance(optimizer, DistributedOptimizer):
        optimizer.to_host = types.MethodType(distributed_to_host, optimizer)


def chained_to_host(self, pin=True):
    for one in self.chained_optimizers[:-1]:
        one.to_host(pin)
    self.chained_optimizers[-1].to_host(
        pin=pin  # why
    )


def distributed_to_host(self, pin=True):
    print(pin)
"""
TRAINER = """
from megatron.core.optimizer import get_megatron_optimizer

from pkg.offload import bind


class Trainer:
    def __init__(self, config, models):
        self.optimizer = get_megatron_optimizer(config, models)
        bind(optimizer=self.optimizer)
        self.models = models

    def to_host(self):
        self.optimizer.to_host()

    def sleep(self):
        self.to_host()
"""

INNER = """
from types import MethodType

from megatron.core.models.gpt.gpt_model import GPTModel


def adjust(model: GPTModel, width):
    # Told by the schedule.
    def _set_shape(self, shapes):
        self.index = shapes[0]

    model.set_shape = MethodType(_set_shape, model)
    model.width = width


def split(model, shapes):
    model.set_shape(shapes)
"""


def made(trainer: str = TRAINER, adding: str = ADDING, **more: str) -> tuple[dict[str, str], str]:
    """The files, and why something is left."""
    files = {
        "pkg/offload.py": adding,
        "pkg/trainer.py": trainer,
        **{f"pkg/{name}.py": text for name, text in more.items()},
    }
    done = migrate({path: text.encode() for path, text in files.items()}, UNSAFE)
    return {path: data.decode() for path, data in done.files.items()}, " ".join(one.text for one in done.plan.remarks)


def test_they_are_called_with_the_object_in_all_files() -> None:
    files, _ = made(other="def sleep(trainer):\n    trainer.to_host()\n")
    offload, trainer = files["pkg/offload.py"], files["pkg/trainer.py"]
    assert "types" not in offload
    assert (
        offload[offload.index("def to_host") : offload.index("def distributed")]
        == """def to_host(optimizer: MegatronOptimizer, *args, **kwargs):
    if isinstance(optimizer, ChainedOptimizer):
        return chained_to_host(optimizer, *args, **kwargs)
    elif isinstance(optimizer, DistributedOptimizer):
        return distributed_to_host(optimizer, *args, **kwargs)
    else:
        raise TypeError(f"to_host does not know {type(optimizer).__name__}")


def chained_to_host(self, pin=True):
    for one in self.chained_optimizers[:-1]:
        to_host(one, pin)
    to_host(
        self.chained_optimizers[-1], pin=pin  # why
    )


"""
    )
    assert trainer == (
        TRAINER.replace("import bind", "import to_host")
        .replace("        bind(optimizer=self.optimizer)\n", "")
        .replace("self.optimizer.to_host()", "to_host(self.optimizer)")
    )
    assert files["pkg/other.py"] == "def sleep(trainer):\n    trainer.to_host()\n"


def test_what_is_raised_names_the_function_that_raises_it() -> None:
    """As ROLL's, which names the first of two methods."""
    line = "        optimizer.{0}_states = types.MethodType({1}_{0}, optimizer)\n"
    classes = {"chained": "ChainedOptimizer", "distributed": "DistributedOptimizer"}
    imports = "from megatron.core.optimizer import ChainedOptimizer, DistributedOptimizer"
    adding = f"import types\n\n{imports}\n\n\ndef bind(optimizer):\n"
    for kind, name in classes.items():
        adding += f"    {'if' if kind == 'chained' else 'elif'} isinstance(optimizer, {name}):\n"
        adding += line.format("offload", kind) + line.format("reload", kind)
    adding += "    else:\n        raise RuntimeError(f'{optimizer} has no offload_states func')\n"
    for kind in classes:
        adding += f"\n\ndef {kind}_offload(self): ...\n\n\ndef {kind}_reload(self): ...\n"
    adding += "\n\ndef use(optimizer):\n    optimizer.offload_states()\n    optimizer.reload_states()\n"
    files, _ = made("from pkg.offload import bind\n", adding)
    new = files["pkg/offload.py"]
    assert [new.count(f"'{{optimizer}} has no {name}_states func'") for name in ("offload", "reload")] == [1, 1]


@pytest.mark.parametrize(
    ("trainer", "adding", "other", "because"),
    [
        (TRAINER.replace("=self.optimizer)", "=models.pop())"), ADDING, "", "uses `bind` in another way"),
        (TRAINER + "\n\nlater = Trainer.optimizer.to_host\n", ADDING, "", "of what may be the same object"),
        (TRAINER.replace("self.to_host()", "self.worker.to_host()"), ADDING, "", "of what may be the same object"),
        (TRAINER + '\n\nasked = getattr(self.optimizer, "to_host")\n', ADDING, "", "asks for `to_host` by name"),
        (TRAINER + "\n\nto_host = print\n", ADDING, "", "has another `to_host`"),
        (TRAINER + "\n\nbound = bind\n", ADDING, "", "uses `bind` in another way"),
        (TRAINER, ADDING + "\n\nto_host = 1\n", "", "the name `to_host` is taken"),
        (TRAINER, ADDING, "def sleep(optimizer):\n    optimizer.to_host()\n", "imports nothing from pkg/offload.py"),
        (
            TRAINER,
            ADDING.replace("            bind(one)\n", "            bind(one)\n        print(1)\n"),
            "",
            "only a function",
        ),
        (TRAINER.replace("to_host()", 'to_host("""a\n    b""")', 1), ADDING, "", "in a form that is not rewritten"),
        (
            TRAINER,
            ADDING.replace("r)\n\n\ndef chained", "r)\n    else:\n        print(1)\n\n\ndef chained"),
            "",
            "only a function",
        ),
        (
            TRAINER,
            INNER.replace("    model.set_shape =", "    if width:\n        model.set_shape ="),
            "",
            "only a function",
        ),
        (
            TRAINER,
            ADDING.replace("one.to_host(pin)", "one.to_host(one.to_host(pin))"),
            "",
            "in a form that is not rewritten",
        ),
        (TRAINER, ADDING.replace("def bind", "@once\ndef bind"), "", "only a function"),
        (TRAINER, ADDING.replace("    if isinst", "    # why\n    if isinst", 1), "", "has a docstring or comments"),
    ],
    ids=[
        "given what a call makes",
        "passed on",
        "another",
        "by name",
        "taken",
        "bind kept",
        "taken here",
        "no import",
        "does more",
        "text",
        "else",
        "on a condition",
        "nested",
        "decorated",
        "comment",
    ],
)
def test_what_is_left_says_why(trainer: str, adding: str, other: str, because: str) -> None:
    files, said = made(trainer, adding, other=other)
    assert (files["pkg/offload.py"], files["pkg/trainer.py"]) == (adding, trainer)
    assert because in said


def test_a_function_inside_moves_out() -> None:
    files, _ = made("", INNER)
    assert (
        files["pkg/offload.py"]
        == """
from megatron.core.models.gpt.gpt_model import GPTModel


# Told by the schedule.
def _set_shape(model, shapes):
    model.index = shapes[0]


def adjust(model: GPTModel, width):
    model.width = width


def split(model, shapes):
    _set_shape(model, shapes)
"""
    )
    for in_the_way in ('"self"', "model", "take(self=1)"):  # a text, another object of that name, a keyword
        kept, _ = made("", INNER.replace("shapes[0]", f"shapes[{in_the_way}]"))
        assert "def _set_shape(self, shapes):" in kept["pkg/offload.py"]
    second = "\n    def _set_input(self, tensors):\n        self.tensors = tensors\n\n    model.set_shape ="
    two = INNER.replace("\n    model.set_shape =", second)
    headed, _ = made("", two)
    assert "    # Told by the schedule.\n    def _set_input" in headed["pkg/offload.py"], "it speaks of both"
    named, _ = made("", two.replace("Told", "_set_shape: told"))
    assert "\n# _set_shape: told by the schedule.\ndef _set_shape" in named["pkg/offload.py"], "of one alone"
    uses_more = INNER.replace("shapes[0]", "shapes[width]")
    files, said = made("", uses_more)
    assert files["pkg/offload.py"] == uses_more
    assert "`_set_shape` uses names of `adjust`" in said
    for old, new in (
        ("self, shapes)", "self, shapes, width=width)"),
        ("    # Told", "    import math\n\n    # Told"),
        ("self.index", "nonlocal width\n        self.index"),
        ("self.index", 'print("""a\n            b""")\n        self.index'),
    ):
        before = INNER.replace(old, new).replace("shapes[0]", "math.prod(shapes)" if "math" in new else "shapes[0]")
        files, said = made("", before)
        assert files["pkg/offload.py"] == before != INNER
        assert "uses names of `adjust`" in said or "has a text of several lines" in said
    unused = INNER[: INNER.index("\n\ndef split")]
    assert "nothing in this repository calls `set_shape`" in made("", unused)[1]
    assert "def adjust" not in made("", INNER.replace("    model.width = width\n", ""))[0]["pkg/offload.py"]
    files, said = made("class Other:\n    def set_shape(self, shapes): ...\n", INNER)
    assert files["pkg/offload.py"] == INNER
    assert "pkg/trainer.py defines another `set_shape`" in said


MAKES = """

class State:
    timers_: Timers | None = None

    @property
    def timers(self) -> Timers:
        if self.timers_ is None:
            self.timers_ = Timers(0, "max")
"""
FUNCTIONS = """        return self.timers_


def _to_wandb(self: Timers, names):
    print(names)


def _to_comet(self: Timers, names):
    print(names)
"""
TIMERS = f"""
import types

from megatron.core.timers import Timers
{MAKES}            self.timers_.to_wandb = types.MethodType(_to_wandb, self.timers_)
            self.timers_.to_comet = types.MethodType(_to_comet, self.timers_)
{FUNCTIONS}"""
OF_A_CLASS = f"""
from megatron.core.timers import Timers as MegatronTimers


class Timers(MegatronTimers):
    \"\"\"Megatron's own, with methods of this file.\"\"\"

    def to_wandb(self, *args, **kwargs):
        return _to_wandb(self, *args, **kwargs)

    def to_comet(self, *args, **kwargs):
        return _to_comet(self, *args, **kwargs)
{MAKES}{FUNCTIONS}"""


def test_an_object_that_is_made_there_is_of_a_subclass() -> None:
    files, _ = made(adding=TIMERS, trainer="def log(timers):\n    getattr(timers, 'to_wandb', None)\n")
    assert files["pkg/offload.py"] == OF_A_CLASS


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        ('"max")\n', '"max")\n            start(self.timers_)\n', "only a function"),  # which may not have them yet
        ("print(names)", "print(Timers(0, names))", "uses `Timers` too"),
        ("print(names)", "print(isinstance(self, Timers))", "uses `Timers` too"),
        ("import Timers", "import Timer, Timers", "statement of its own"),
        ("def _to_comet", "def _to_other", "functions of this file"),
        ("def _to_comet", "MegatronTimers = 1\n\n\ndef _to_comet", "is taken"),
    ],
)
def test_a_class_that_is_used_for_more_stays_the_class(old: str, new: str, because: str) -> None:
    adding = TIMERS.replace(old, new)
    files, remarks = made(adding=adding, trainer="")
    assert files["pkg/offload.py"] == adding != TIMERS
    assert because in remarks


def test_a_class_that_another_file_imports_from_there_stays() -> None:
    files, remarks = made(adding=TIMERS, trainer="from pkg.offload import Timers\n\nprint(Timers)\n")
    assert files["pkg/offload.py"] == TIMERS
    assert "pkg/trainer.py:1 uses `Timers` too" in remarks


def test_a_class_that_is_known_by_its_dotted_name_stays() -> None:
    files, remarks = made(adding=TIMERS, trainer='RUNTIME_ONLY = {"megatron.core.timers.Timers"}\n')
    assert files["pkg/offload.py"] == TIMERS
    assert "pkg/trainer.py knows the class as `megatron.core.timers.Timers`" in remarks


def test_a_comment_on_the_import_of_the_class_stays() -> None:
    adding = TIMERS.replace("import Timers\n", "import (\n    Timers,  # why\n)\n")
    files, _ = made(adding=adding, trainer="")
    assert "import (\n    Timers as MegatronTimers,  # why\n)\n" in files["pkg/offload.py"]
