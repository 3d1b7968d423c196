"""Patches of a real release, with file and line: of a function, of code, of models of several chunks.

Every other way is tried on a small Megatron.
"""

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest
from programs import in_forks

PATCHES = """\
    import types

    from megatron.core import utils
    from megatron.core.models.gpt.gpt_model import GPTModel


    def get_model_config(model):
        return model.config


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
    "function": "patches.utils.get_model_config = patches.get_model_config",
    "code": "patches.GPTModel.forward.__code__ = (lambda self, *args, **kwargs: 1).__code__",
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


def test_a_rebound_function_and_the_modules_that_still_hold_the_original(patched: dict[str, Any]) -> None:
    first, *others = rows(patched["function"])
    assert first == ("function", "utils.get_model_config", line("def get_model_config(model):"))
    assert ("stale", "pipeline_parallel.schedules.get_model_config") in [row[:2] for row in others]
    assert {row[0] for row in others} == {"stale"}
    assert ("method", f"{GPT}.forward") in [row[:2] for row in rows(patched["code"])]


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
