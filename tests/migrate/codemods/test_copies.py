"""What copies of Megatron's forward are compared with, and what the table says of a copy."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from composed import composed
from planning import migrate

from mcore_unpatch.codemods.edits import Options
from mcore_unpatch.codemods.seams.copies.ending import FIELDS, KEYWORDS
from mcore_unpatch.codemods.seams.copies.upstream import METHODS, bodies
from mcore_unpatch.megatron import history

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden/copies"
SAMPLE = ROOT / "examples/tiny_rl"


def test_every_known_release_has_its_bodies() -> None:
    forward = [release for body in bodies("forward") for release in body.releases]
    assert forward == list(history.releases())
    assert all(body.before for body in bodies("forward"))
    assert all(body.hook and body.end for body in bodies("_postprocess"))


def test_the_table_is_what_the_installed_release_says() -> None:
    spec = importlib.util.find_spec("megatron.core") if importlib.util.find_spec("megatron") else None
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("megatron-core is not installed")
    tool = importlib.util.spec_from_file_location("build_gpt_bodies", ROOT / "tools/build_gpt_bodies.py")
    assert tool is not None
    assert tool.loader is not None
    module = importlib.util.module_from_spec(tool)
    tool.loader.exec_module(module)
    found = module.bodies(Path(next(iter(spec.submodule_search_locations))).parents[1])
    for method in METHODS:
        newest = bodies(method)[-1]
        assert [newest.before, newest.hook, newest.end] == [
            tuple(found[method][one]) for one in ("before", "hook", "end")
        ]


def test_the_fields_of_the_context_are_compats() -> None:
    pytest.importorskip("torch")
    from dataclasses import fields

    from mcore_unpatch.compat import HookContext

    assert {*FIELDS, "groups", "extra"} == {one.name for one in fields(HookContext)}


def test_the_keywords_are_megatrons() -> None:
    assert len(KEYWORDS) == 16


def test_the_sample_project_migrates() -> None:
    files = {path.relative_to(SAMPLE).as_posix(): path.read_bytes() for path in SAMPLE.rglob("*.py")}
    result = migrate(files, Options(unsafe_fixes=True))
    left = {(finding.path, finding.rule) for finding in result.after}
    assert left == {("tiny_rl/megatron/critic.py", "MCU501")}
    fused = result.files["tiny_rl/megatron/fused_forward.py"].decode()
    assert "def _forward_with_log_probs(*, hidden_states, output_layer, labels, context, **_):" in fused
    assert "attach(model, _postprocess_with_mtp)" in result.files["tiny_rl/megatron/mtp.py"].decode()


def test_the_table_says_what_the_model_gets_back() -> None:
    result = migrate({"a.py": composed((GOLDEN / "lacks_things.in.py").read_bytes())}, Options(unsafe_fixes=True))
    said = " ".join(note for edit in result.plan.edits for note in edit.notes)
    for name in ("decoder_input", "packed_seq_params", "padding_mask"):
        assert f"`{name}`" in said
    assert "pass `labels` by keyword: Megatron has `decoder_input` in its place" in said


REASONS = {
    "noop_asks_for_rotary": "uses `rotary_pos_emb`, which is computed before the hook",
    "noop_before_the_decoder": "comes before the decoder's output and is in no release's forward",
    "noop_by_position": "passes `labels` by position",
    "noop_in_a_mapping": "may pass `temperature` to a model in a mapping",
    "noop_of_the_class": "it patches the class and takes no parameter of its own",
    "noop_own_mtp_loss": "does MTP in its own way (`mtp`)",
    "noop_own_stage_code": "ran on every pipeline stage",
    "noop_reads_the_rest": "reads `**kwargs`",
    "noop_used_twice": "is also used elsewhere",
}


@pytest.mark.parametrize(("case", "reason"), REASONS.items())
def test_a_refusal_has_a_reason(case: str, reason: str) -> None:
    result = migrate({"a.py": composed((GOLDEN / f"{case}.in.py").read_bytes())}, Options(unsafe_fixes=True))
    (remark,) = result.plan.remarks
    assert remark.kind == "by-hand"
    assert reason in remark.text
    assert "restores the original" not in remark.text


def test_a_class_whose_models_are_called_elsewhere_stays() -> None:
    own = composed((GOLDEN / "class_level.in.py").read_bytes())
    other = b"def other(model, batch):\n    return model(input_ids=batch, temperature=0.5)\n"
    result = migrate({"a.py": own, "b.py": other}, Options(unsafe_fixes=True))
    assert any("b.py, line 2 calls such a model in another file" in remark.text for remark in result.plan.remarks)
    assert result.files["b.py"] == other


def changed(case: str, old: str, new: str, **others: str) -> list[str]:
    """The reasons why a golden file that is changed a little stays, beside other files; everything does."""
    own = composed((GOLDEN / f"{case}.in.py").read_bytes())
    assert old.encode() in own
    files = {
        "a.py": own.replace(old.encode(), new.encode()),
        **{f"{name}.py": text.encode() for name, text in others.items()},
    }
    result = migrate(files, Options(unsafe_fixes=True))
    assert all("attach" not in text.decode() for text in result.files.values())
    return [remark.text for remark in result.plan.remarks]


def test_another_default_of_megatrons_own_parameter_stays() -> None:
    (reason,) = changed("instance", "runtime_gather_output=None", "runtime_gather_output=True")
    assert "`runtime_gather_output` is `True` by default, and None in Megatron" in reason


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("model.forward(batch.input_ids, temperature=1)", "calls `forward` itself, where no hook runs"),
        ("unwrap(model).forward(input_ids=1, temperature=1)", "calls `forward` itself, where no hook runs"),
        ("model(tokens, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)", "passes `temperature` by position"),
        ("model[0](input_ids=1, temperature=1, images=2)", "passes `images`, which only the copy takes"),
        ("self.model(batch['input_ids'], images=2, loss_mask=3)", "passes `images`, which only the copy takes"),
    ],
)
def test_a_call_that_megatron_would_not_take_stays(call: str, reason: str) -> None:
    head = "    *,\n    inference_params=None,\n    loss_mask=None,\n    padding_mask=None,\n    temperature=1.0,\n"
    new = (
        "    inference_params=None,\n    loss_mask=None,\n    padding_mask=None,\n    temperature=1.0,\n    **kwargs,\n"
    )
    call = f"def step(self, model, batch):\n    return {call}\n"
    (told,) = changed(
        "instance", head, head.replace("1.0,", "1.0,\n    **kwargs,") if "tokens" not in call else new, b=call
    )
    assert "b.py, line 2" in told
    assert reason in told


@pytest.mark.parametrize(
    "call",
    [
        "other(input_ids=1, images=2)",
        "super().forward(input_ids=1, temperature=2)",
        "model(input_ids=1, attention_mask=2, use_cache=False)",
        "self.model.embedding(input_ids=1, images=2)",
    ],
)
def test_calls_of_others_do_not_count(call: str) -> None:
    own = composed((GOLDEN / "instance.in.py").read_bytes()).replace(
        b"temperature=1.0,\n)", b"temperature=1.0,\n    **kw,\n)"
    )
    files = {"a.py": own, "b.py": f"def other(**kw): ...\ndef step(model):\n    return {call}\n".encode()}
    assert not migrate(files, Options(unsafe_fixes=True)).after


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("dict(input_ids=1, temperature=2)", "may pass `temperature` to a model in a mapping"),
        ("model(input_ids=1, position_ids=2)", "may call such a model without `temperature`"),
    ],
)
def test_a_class_with_other_calls_stays(call: str, reason: str) -> None:
    (told,) = changed("class_level", "def install():", f"def other(model):\n    return {call}\n\n\ndef install():")
    assert reason in told


@pytest.mark.parametrize(
    "line",
    [
        "labels = labels.clone()",
        "decoder_input = None",
        "size = prepare(input_ids)",
        "self.calls = 1",
        "assert decoder_input is None",
        "torch.cuda.nvtx.range_push('forward')",
    ],
)
def test_what_matters_before_the_decoder_stays(line: str) -> None:
    (told,) = changed("whole", "temperature=1.0,\n):\n", f"temperature=1.0,\n):\n    {line}\n")
    assert "comes before the decoder's output and is in no release's forward" in told


def test_the_table_names_the_releases_of_a_copy() -> None:
    result = migrate({"a.py": composed((GOLDEN / "whole.in.py").read_bytes())}, Options(unsafe_fixes=True))
    said = [note for edit in result.plan.edits for note in edit.notes]
    assert "a copy of the forward of 0.18.0 to 0.19.2: what follows the decoder is now a processor" in said


def test_a_patch_of_the_unknown_that_is_no_copy_is_not_spoken_of() -> None:
    own = b"""from megatron.core.models.gpt.gpt_model import GPTModel
def f(self, x):
    y = self.decoder(x)
    return y
def p(model: GPTModel):
    model.forward = f.__get__(model)
"""
    result = migrate({"a.py": own}, Options(unsafe_fixes=True))
    assert [one.rule for one in result.after] == ["MCU603"]
    assert not result.plan.remarks


def test_code_for_inference_stays() -> None:
    own = composed((GOLDEN / "undone.in.py").read_bytes())
    line = b"    logits, _ = self.output_layer(hidden_states)\n"
    changed = own.replace(line, b"    if inference_context is not None:\n        return hidden_states[-1:]\n" + line)
    (remark,) = migrate({"a.py": changed}, Options(unsafe_fixes=True)).plan.remarks
    assert "asks for `inference_context`: calls for inference do not come to a processor" in remark.text
    assert re.search(r", and what keeps and restores the original \(line \d+(, \d+)+\)", remark.text)


@pytest.mark.parametrize("name", ["process_mtp_loss", "MTPLossAutoScaler", "MTPLossLoggingHelper", "roll_tensor"])
def test_mtp_in_its_own_way_stays(name: str) -> None:
    own = composed((GOLDEN / "undone.in.py").read_bytes())
    line = b"    logits, _ = self.output_layer(hidden_states)\n"
    changed = own.replace(line, f"    {name}(hidden_states)\n".encode() + line)
    (remark,) = migrate({"a.py": changed}, Options(unsafe_fixes=True)).plan.remarks
    assert f"does MTP in its own way (`{name}`)" in remark.text
