"""What a repository hands to Megatron to be called, between two releases of a few lines."""

from mcore_unpatch.judge.statement import IDLE
from mcore_unpatch.library.build import build
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

SMALL = {
    "megatron/__init__.py": b"",
    "megatron/core/__init__.py": b"",
    "megatron/core/work.py": b"""
from abc import abstractmethod

class Worker:
    def run(self):
        first = self.start(1)
        return first
    def start(self, x):
        return x
    def stop(self):
        pass

def get_model(provider):
    return provider(pre_process=True)

def pretrain(model, step_func):
    train(step_func, get_model(model))

def train(function, model):
    output, loss = function(model)
""",
    "megatron/training/__init__.py": b"""
from megatron.core.work import Worker
def parse(parser):
    parser.add_argument("--micro-batch", "-m")
    parser.add_argument("--old-thing", action="store_true")
    parser.add_argument("--also-gone", action="store_true")
    args = parser.parse_args()
    args.world_size = 1
def get_args():
    return _ARGS
""",
}
ARGUMENTS = b"""
def parse_args():
    return parser.parse_args()
def validate(defaults, args):
    return args
"""
LATER = (
    (b"def stop(self):", b"@abstractmethod\n    def stop(self):"),
    (b"first = self.start(1)", b"first, second = self.start(1)"),
    (b"provider(pre_process=True)", b"provider(pre_process=True, vp_stage=0)"),
    (b"output, loss = function(model)", b"output, loss, count = function(model)"),
    (b"--old-thing", b"--old-things"),
    (b"--also-gone", b"--new"),
)
MINE = """
from megatron.core.work import Worker, get_model
class Mine(Worker):
    def start(self, x):
        return x, x, x
def provider(pre_process):
    return pre_process
get_model(provider)
get_model(lambda **rest: rest)

from megatron.core.work import pretrain
def step(model):
    return model, 1
pretrain(lambda **rest: rest, step)

def make():
    def made(pre_process):
        return pre_process
    return made
get_model(make())
class Manager:
    def model(self, pre_process):
        return pre_process
    def go(self):
        get_model(self.model)

from megatron.training import get_args
def use():
    args = get_args()
    if hasattr(args, "also_gone"):
        args.also_gone
    return args.micro_batch, args.old_thing
"""


def test_what_megatron_calls_in_the_repository() -> None:
    """An abstract method that appeared, values that the caller unpacks, a callback that is given more."""
    later = dict(SMALL)
    for old, new in LATER:
        later = {path: text.replace(old, new) for path, text in later.items()}
    models = [build(LIBRARY, label, files.items()) for label, files in (("0.30.0", SMALL), ("0.31.0", later))]
    project = Project({"a.py"}.__contains__, lambda _: MINE.encode())
    said = {one.line: one for one in uses_of(["a.py"], project, *models).affected}
    raised = {3: "TypeError", 4: "ValueError", 8: "TypeError", 14: "ValueError", 20: "TypeError", 25: "TypeError"}
    raised[32] = "AttributeError"
    assert {line: one.exception for line, one in said.items()} == raised
    assert "`stop` of `Worker` is abstract" in said[3].text
    assert "returns 3 values where `Worker.run` of megatron-core 0.31.0 unpacks 2" in said[4].text
    assert "passes `vp_stage`, which `provider` does not take" in said[8].text
    assert "`pretrain` of megatron-core 0.31.0 unpacks 3 values from `step`, which gives 2" in said[14].text
    assert "`args.old_thing` is made by no option of megatron-core 0.31.0" in said[32].text
    assert said[32].instead == "`args.old_things` is the closest match"
    assert uses_of(["a.py"], project, models[1], models[1]).affected == []
    own = f"{MINE}parser.add_argument('--old-thing')\n"
    project = Project({"a.py"}.__contains__, lambda _: own.encode())
    assert 32 not in {one.line for one in uses_of(["a.py"], project, *models).affected}
    own = f"{MINE}for key in table:\n    setattr(args, key, table[key])\n"
    project = Project({"a.py"}.__contains__, lambda _: own.encode())
    (open_one,) = (one for one in uses_of(["a.py"], project, *models).affected if one.line == 32)
    assert open_one.kind == IDLE
    assert open_one.text.endswith("gone, unless your own code puts it there")


BUILT = {
    "megatron/__init__.py": b"",
    "megatron/core/__init__.py": b"",
    "megatron/core/transformer/__init__.py": b"",
    "megatron/core/transformer/transformer_config.py": b"""
from dataclasses import dataclass
@dataclass
class TransformerConfig:
    overlap: bool = False
""",
    "megatron/core/work.py": b"""
from dataclasses import dataclass
class Part:
    def __init__(self, config, submodules): ...
    def go(self):
        return self.tensors(1)
    def tensors(self, x):
        return x
@dataclass
class LayerSubmodules:
    part: type = None
def spec():
    return LayerSubmodules(part=Part)
class Layer:
    def __init__(self, config, submodules):
        self.part = build_module(submodules.part, config=config)

def run(step_func, config, last):
    if config.overlap and not last:
        run_both(step_func)
    else:
        step_func(1)
def run_both(step_func):
    step_func(1)
""",
}
BUILT_LATER = (
    (b"build_module(submodules.part, config=config)", b"build_module(submodules.part, config=config, name=1)"),
    (b"config, submodules): ...", b"config, submodules, name=None): ..."),
    (b"def run_both(step_func):\n    step_func(1)", b"def run_both(step_func):\n    step_func(1, plan=True)"),
    (b"return self.tensors(1)", b"return self.tensors(1, gate=True)"),
    (b"def tensors(self, x)", b"def tensors(self, x, gate=False)"),
)  # fmt: skip
OWN = """
from megatron.core.work import Part, run
class Mine(Part):
    def __init__(self, config, submodules): ...
class Between(Part):
    def go(self):
        return self.tensors(1)
class Below(Between):
    def tensors(self, x):
        return x
def step(x):
    return x
run(step, config, True)
if __name__ == "__main__":
    Part(1, 2, 3, 4)
"""


def test_calls_through_specs_between_classes_and_under_a_setting() -> None:
    """A spec gives `submodules`; an own class answers for Megatron's; a setting is told, a new one is off."""
    later = dict(BUILT)
    for old, new in BUILT_LATER:
        later = {path: text.replace(old, new) for path, text in later.items()}
    setting = "megatron/core/transformer/transformer_config.py"
    fresh = {**BUILT, setting: BUILT[setting].replace(b"overlap", b"other")}
    first, second, without = (
        build(LIBRARY, label, files.items())
        for label, files in (("0.30.0", BUILT), ("0.31.0", later), ("0.29.0", fresh))
    )
    project = Project({"a.py"}.__contains__, lambda _: OWN.encode())
    said = {one.line: one for one in uses_of(["a.py"], project, first, second).affected}
    assert set(said) == {4, 13}, said
    assert "`Layer.__init__` of megatron-core 0.31.0 passes `name`, which `Mine.__init__` does not take" in said[4].text
    assert said[13].text.endswith("passes `plan`, which `step` does not take, only if `config.overlap`")
    said = {one.line: one for one in uses_of(["a.py"], project, without, second).affected}
    assert said[13].kind == IDLE
    wrong = [one for one in uses_of(["a.py"], project, first, second).already if one.line == 15]
    assert [one.trigger for one in wrong] == ["when the file is run"]


def test_arguments_of_megatron_that_a_function_is_given() -> None:
    """What it hands on to a function of Megatron's that takes `args`, or what its callers get from Megatron."""
    small = {**SMALL, "megatron/training/arguments.py": ARGUMENTS}
    later = {path: text.replace(b"old-thing", b"old-things") for path, text in small.items()}
    models = [build(LIBRARY, label, files.items()) for label, files in (("0.30.0", small), ("0.31.0", later))]
    text = b"""\
from megatron.training.arguments import parse_args, validate
def provider(args):
    validate(1, args)
    return args.old_thing
def deeper(args):
    return args.old_thing
def main():
    args = parse_args()
    deeper(args)
    return args.old_thing
def other(args):
    validate(args, 1)
    return args.old_thing
def changed(args):
    validate(1, args)
    args = object()
    return args.old_thing
other(1)
"""
    project = Project({"a.py"}.__contains__, lambda _: text)
    assert [one.line for one in uses_of(["a.py"], project, *models).affected] == [4, 6, 10]


def test_an_option_with_more_words_or_less_is_no_match() -> None:
    """`profile` and `rl_profile` are two things."""
    for name, told in (("old_things", True), ("rl_old_thing", False), ("thing", False)):
        flag = name.replace("_", "-").encode()
        later = {path: text.replace(b"old-thing", flag) for path, text in SMALL.items()}
        models = [build(LIBRARY, label, files.items()) for label, files in (("0.30.0", SMALL), ("0.31.0", later))]
        text = b"from megatron.training import get_args\ndef use():\n    return get_args().old_thing\n"
        (said,) = uses_of(["a.py"], Project({"a.py"}.__contains__, lambda _, text=text: text), *models).affected  # type: ignore[misc]
        assert bool(said.instead) is told
