"""Every way of patching is named, with file and line: on classes, modules, instances, and in which order."""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from programs import in_forks

PATCHES = """\
    import functools
    import types

    from megatron.core import utils
    from megatron.core.models.gpt import gpt_model
    from megatron.core.models.gpt.gpt_model import GPTModel


    def first():
        original = GPTModel._postprocess

        @functools.wraps(original)
        def wrapped(self, *args, **kwargs):
            return original(self, *args, **kwargs)

        GPTModel._postprocess = wrapped


    def second():
        original = GPTModel._postprocess

        def drops_the_hook(self, *args, **kwargs):
            kwargs.pop("output_processor", None)
            return original(self, *args, **kwargs)

        setattr(GPTModel, "_postprocess", drops_the_hook)


    def get_model_config(model):
        return model.config


    class TransformerBlock:
        pass


    def bind(model):
        def forward(self, *args, **kwargs):
            return type(self).forward(self, *args, **kwargs)

        model.forward = types.MethodType(forward, model)


    def watch_layers(module, args):
        return None
"""
REPORT = """
    import patches
    {code}
    said = audit.audit(locals().get("model"), files=False).to_json()
"""
PROGRAMS = {
    "wrapped twice": "patches.first(); patches.second()",
    "function": "patches.utils.get_model_config = patches.get_model_config",
    "partial": "import functools; patches.utils.get_model_config = functools.partial(patches.utils.get_model_config)",
    "class": "patches.gpt_model.TransformerBlock = patches.TransformerBlock",
    "own class": "patches.gpt_model.GPTModel = type('GPTModel', (), {'__module__': patches.gpt_model.__name__})",
    "added": "patches.GPTModel.my_forward = patches.get_model_config",
    "code": "patches.GPTModel.forward.__code__ = (lambda self, *args, **kwargs: 1).__code__",
    "another method of Megatron": "patches.GPTModel.forward = patches.GPTModel._preprocess",
    "exec": "exec('def f(self): pass', scope := {}); patches.GPTModel.forward = scope['f']",
    "module": "import sys, types; sys.modules['megatron.core.fake'] = types.ModuleType('megatron.core.fake')",
    "mock": "from unittest import mock; mock.patch.object(patches.GPTModel, 'forward').start()",
    "instances": """world()
    model = [build(Setting("gpt")), build(Setting("gpt"))]
    patches.bind(model[1])
    model[0].output_layer = torch.nn.Linear(4, 4)
    model[0].decoder.layers[1].register_forward_pre_hook(patches.watch_layers)""",
}


@pytest.fixture(scope="module")
def patched(tmp_path_factory: pytest.TempPathFactory, processes: None) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("patches")
    (folder / "patches.py").write_text(textwrap.dedent(PATCHES))
    return in_forks("0.19.2", {name: REPORT.format(code=code) for name, code in PROGRAMS.items()}, folder)


def rows(report: dict[str, Any]) -> list[tuple[str, str, int]]:
    return [
        (one["kind"], one["name"].removeprefix("megatron.core."), one["by"]["line"]) for one in report["deviations"]
    ]


def line(text: str) -> int:
    return textwrap.dedent(PATCHES).splitlines().index(text) + 1


GPT = "models.gpt.gpt_model.GPTModel"


def test_two_wrappers_are_told_in_their_order(patched: dict[str, Any]) -> None:
    (one,) = patched["wrapped twice"]["deviations"]
    assert one["by"]["name"] == "patches.second.<locals>.drops_the_hook"
    names = [origin["name"] for origin in one["order"]]
    assert names == ["patches.first.<locals>.wrapped", "patches.second.<locals>.drops_the_hook"]
    assert one["by"]["line"] == line("    def drops_the_hook(self, *args, **kwargs):")
    assert one["by"]["package"] == "patches"


def test_a_rebound_function_and_the_modules_that_still_hold_the_original(patched: dict[str, Any]) -> None:
    first, *others = rows(patched["function"])
    assert first == ("function", "utils.get_model_config", line("def get_model_config(model):"))
    assert ("stale", "pipeline_parallel.schedules.get_model_config") in [row[:2] for row in others]
    assert {row[0] for row in others} == {"stale"}
    assert ("function", "utils.get_model_config") in [row[:2] for row in rows(patched["partial"])]


def test_classes(patched: dict[str, Any]) -> None:
    assert rows(patched["class"]) == [
        ("imported", "models.gpt.gpt_model.TransformerBlock", line("class TransformerBlock:"))
    ]
    assert ("class", GPT) in [row[:2] for row in rows(patched["own class"])]


@pytest.mark.parametrize("name", ["code", "another method of Megatron", "exec", "mock"])
def test_other_ways_to_the_same_method(patched: dict[str, Any], name: str) -> None:
    assert ("method", f"{GPT}.forward") in [row[:2] for row in rows(patched[name])]


def test_added_names_and_modules(patched: dict[str, Any]) -> None:
    assert rows(patched["added"]) == [("added", f"{GPT}.my_forward", line("def get_model_config(model):"))]
    assert rows(patched["module"]) == [("module", "fake", 0)]


def test_instances(patched: dict[str, Any]) -> None:
    report = patched["instances"]
    assert {
        (one["kind"], one["name"].removeprefix("megatron.core."), *one["where"]) for one in report["deviations"]
    } == {
        ("instance", f"{GPT}.forward", "chunk1"),
        ("submodule", f"{GPT}.output_layer", "chunk0"),
    }
    (hook,) = report["hooks"]
    assert (hook["path"], hook["kind"]) == ("chunk0.decoder.layers.1", "forward pre-hook")
    assert (hook["by"]["name"], Path(hook["by"]["file"]).name) == ("patches.watch_layers", "patches.py")
    assert json.dumps(report)
