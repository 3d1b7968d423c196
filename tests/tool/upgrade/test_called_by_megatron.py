"""What a repository hands to Megatron to be called, between two releases of a few lines."""

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
}
LATER = (
    (b"def stop(self):", b"@abstractmethod\n    def stop(self):"),
    (b"first = self.start(1)", b"first, second = self.start(1)"),
    (b"provider(pre_process=True)", b"provider(pre_process=True, vp_stage=0)"),
    (b"output, loss = function(model)", b"output, loss, count = function(model)"),
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
"""


def test_what_megatron_calls_in_the_repository() -> None:
    """An abstract method that appeared, values that the caller unpacks, a callback that is given more."""
    later = dict(SMALL)
    for old, new in LATER:
        later = {path: text.replace(old, new) for path, text in later.items()}
    models = [build(LIBRARY, label, files.items()) for label, files in (("0.30.0", SMALL), ("0.31.0", later))]
    project = Project({"a.py"}.__contains__, lambda _: MINE.encode())
    said = {one.line: one for one in uses_of(["a.py"], project, *models).affected}
    raised = {3: "TypeError", 4: "ValueError"}
    assert {line: one.exception for line, one in said.items()} == raised
    assert "`stop` of `Worker` is abstract" in said[3].text
    assert "returns 3 values where `Worker.run` of megatron-core 0.31.0 unpacks 2" in said[4].text
    assert uses_of(["a.py"], project, models[1], models[1]).affected == []


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
    first, second = (build(LIBRARY, label, files.items()) for label, files in (("0.30.0", BUILT), ("0.31.0", later)))
    project = Project({"a.py"}.__contains__, lambda _: OWN.encode())
    said = {one.line: one for one in uses_of(["a.py"], project, first, second).affected}
    assert set(said) == {4}, said
    assert "`Layer.__init__` of megatron-core 0.31.0 passes `name`, which `Mine.__init__` does not take" in said[4].text
    wrong = [one for one in uses_of(["a.py"], project, first, second).already if one.line == 15]
    assert [one.trigger for one in wrong] == ["when the file is run"]
