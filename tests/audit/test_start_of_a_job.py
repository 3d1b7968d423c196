"""`expect`, `forbid` and `hook_works`: what a job asks in its first second, and what it is told."""

from typing import Any

import pytest
from programs import RELEASES, in_forks

PRELUDE = """
    import types
    from megatron.core.models.gpt.gpt_model import GPTModel
    def my_postprocess(self, *args, **kwargs):
        return 1
    def tried(call, *args, **kwargs):
        try:
            call(*args, **kwargs)
        except (audit.AuditError, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return ""
"""
CLEAN = """
    said = [tried(audit.forbid), tried(audit.forbid, "GPTModel", "megatron.core.parallel_state"),
            tried(audit.expect, "GPTModel._postprocess"), tried(audit.forbid, "GPTModle")]
"""
PATCHED = """
    GPTModel._postprocess = my_postprocess
    said = [tried(audit.forbid, "GPTModel"), tried(audit.forbid, "TransformerBlock", "GPTModel.forward"),
            tried(audit.expect, "GPTModel._postprocess"), tried(audit.expect, "GPTModel._postprocess", by="verl")]
"""
CHUNKS = """
    world()
    chunks = [build(Setting("gpt")), build(Setting("gpt"))]
    chunks[0]._postprocess = types.MethodType(my_postprocess, chunks[0])
    one = tried(audit.expect, "GPTModel._postprocess", model=chunks)
    chunks[1]._postprocess = types.MethodType(my_postprocess, chunks[1])
    both = tried(audit.expect, "GPTModel._postprocess", model=chunks)
    said = [one, both, tried(audit.forbid, "GPTModel", model=chunks)]
"""
HOOK = """
    from megatron.core.transformer.module import Float16Module
    world()
    class Refuses(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.language_model = model
        def forward(self, input_ids, position_ids, attention_mask):
            return self.language_model(input_ids, position_ids, attention_mask)
    class Swallows(Refuses):
        def forward(self, input_ids, position_ids, attention_mask, **kwargs):
            return self.language_model(input_ids, position_ids, attention_mask)
    class Passes(Refuses):
        def forward(self, **kwargs):
            return self.language_model.forward(**kwargs)
    setting = Setting("gpt", dtype="bfloat16")
    wrapped = Float16Module(build(setting).config, build(setting)).train()
    models = [wrapped, Passes(build(Setting("gpt"))), Refuses(build(Setting("gpt"))), Swallows(build(Setting("gpt"))),
              build(Setting("hybrid", hybrid=True)), build(Setting("mtp", mtp=True))]
    ignoring = build(Setting("gpt"))
    def dropped(self, *args, output_processor=None, **kwargs):
        return GPTModel._postprocess(self, *args, **kwargs)
    ignoring._postprocess = types.MethodType(dropped, ignoring)
    outcomes = [audit.hook_works(model) for model in [*models, ignoring]]
    said = [[one.how, one.at] for one in outcomes]
    first = build(Setting("gpt"))
    first.post_process = False
    said.append([audit.hook_works(first).how, ""])
    said.append([all(module.training for module in wrapped.modules()), len(wrapped._forward_pre_hooks)])
"""

GUARD = """
    import pathlib, tempfile
    from mcore_unpatch import pins
    from mcore_unpatch.stacks.sources import installed_model
    name = "megatron.core.models.gpt.gpt_model.GPTModel._postprocess"
    file = pathlib.Path(tempfile.mkdtemp()) / "unpatch.lock"
    file.write_text(pins.Lock({name: pins.pin(name, [installed_model()])}).text())
    with pins.guard(name, file):
        said = ["installed"]
    exec(compile("def theirs(self): pass", "theirs.py", "exec"))
    GPTModel._postprocess = theirs
    try:
        with pins.guard(name, file):
            said.append("installed over it")
    except pins.PinError as error:
        said.append(str(error))
"""


@pytest.fixture(scope="module", params=RELEASES)
def said(request: pytest.FixtureRequest, processes: None) -> dict[str, Any]:
    programs = {"clean": CLEAN, "patched": PATCHED, "chunks": CHUNKS, "hook": HOOK, "guard": GUARD}
    return in_forks(request.param, {name: PRELUDE + code for name, code in programs.items()})


def test_on_a_clean_megatron(said: dict[str, Any]) -> None:
    nothing, named, absent, unknown = said["clean"]
    assert (nothing, named) == ("", "")
    assert absent == "AuditError: A patch that this job expects is absent:\n  GPTModel._postprocess is Megatron's own"
    assert unknown.startswith("ValueError: GPTModle is no name of the Megatron in this process")


def test_the_error_names_the_culprit(said: dict[str, Any]) -> None:
    forbidden, others, expected, of_another = said["patched"]
    assert "GPTModel._postprocess is rebound, by" in forbidden
    assert "my_postprocess (patched:" in forbidden
    assert (others, expected) == ("", "")
    assert "GPTModel._postprocess is not verl's" in of_another


def test_on_every_chunk(said: dict[str, Any]) -> None:
    one, both, forbidden = said["chunks"]
    assert "GPTModel._postprocess is Megatron's own on chunk 1 of 2" in one
    assert both == ""
    assert "is bound over on instances (2: chunk0, ...)" in forbidden


def test_where_the_hook_is_lost(said: dict[str, Any]) -> None:
    outcomes = said["hook"]
    assert [how for how, _ in outcomes[:8]] == [
        "called",
        "called",
        "refuses",
        "swallows",
        "refuses",
        "called",
        "ignores",
        "no output",
    ]
    assert "Refuses.forward" in outcomes[2][1]
    assert "Swallows.forward" in outcomes[3][1]
    assert "HybridModel.forward" in outcomes[4][1]
    assert "dropped" in outcomes[6][1]
    assert outcomes[8] == [True, 0]  # the model is as it was


def test_a_guard_does_not_patch_over_somebody_else(said: dict[str, Any]) -> None:
    installed, refused = said["guard"]
    assert installed == "installed"
    assert "is already replaced by" in refused
    assert "theirs (theirs.py:1)" in refused
