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
