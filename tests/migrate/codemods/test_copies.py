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
from mcore_unpatch.library.sources import read_source
from mcore_unpatch.megatron.roots import LIBRARY
from mcore_unpatch.megatron.versions import RELEASES

ROOT = Path(__file__).parents[3]
GOLDEN = Path(__file__).parent / "golden/copies"
SAMPLE = ROOT / "examples/tiny_rl"


def test_every_known_release_has_its_bodies() -> None:
    forward = [release for body in bodies("forward") for release in body.releases]
    assert forward == list(RELEASES)
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
    folder = Path(next(iter(spec.submodule_search_locations))).parents[1]
    found = module.bodies(read_source(folder, LIBRARY))
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
    "noop_before_the_decoder": "runs before the decoder's output and is not in any release's forward",
    "noop_by_position": "passes `labels` by position",
    "noop_of_the_class": "it patches the class: which calls need the processor is not known",
    "noop_own_mtp_loss": "has MTP code of its own (`mtp`)",
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


def two_files(install: str, extra: str = "") -> dict[str, bytes]:
    """The golden file `instance`, with its install in a file of its own."""
    own = composed((GOLDEN / "instance.in.py").read_bytes())
    begin, end = own.index(b"def patch_forward("), own.index(b"def forward_with_log_probs(")
    return {
        "pkg/__init__.py": b"from pkg.fused import forward_with_log_probs\n\n__all__ = ['forward_with_log_probs']\n",
        "pkg/fused.py": own[:begin] + own[end:],
        "pkg/patches.py": (install + extra).encode(),
    }


def installing(imports: str, value: str) -> str:
    head = f"from functools import partial\n\n{imports}\nfrom megatron.core.models.gpt.gpt_model import GPTModel\n\n\n"
    return f"{head}def patch_forward(model: GPTModel):\n    model.forward = {value}\n"


FORMS = {
    "named": ("from pkg.fused import forward_with_log_probs", "forward_with_log_probs.__get__(model, GPTModel)"),
    "renamed": ("from .fused import forward_with_log_probs as new", "new.__get__(model)"),
    "module": ("from . import fused", "fused.forward_with_log_probs.__get__(model)"),
    "dotted": ("import pkg.fused", "partial(pkg.fused.forward_with_log_probs, model)"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_function_of_another_file(form: str) -> None:
    files = two_files(installing(*FORMS[form]))
    result = migrate(files, Options(unsafe_fixes=True))
    assert not result.after
    golden = (GOLDEN / "instance.out.py").read_text()
    assert result.files["pkg/fused.py"].decode().endswith(golden[golden.index("def forward_with_log_probs(") :])
    name = FORMS[form][1].partition(".__get__")[0].removeprefix("partial(").removesuffix(", model)")
    attached = f'attach(model, {name}, legacy={{"temperature": "temperature"}})'
    assert attached in " ".join(result.files["pkg/patches.py"].decode().replace("\n", " ").split()).replace(
        "( ", "("
    ).replace(" )", ")")


def test_a_function_that_is_used_in_a_third_file_stays() -> None:
    use = b"from pkg.fused import forward_with_log_probs\n\nprint(forward_with_log_probs)\n"
    files = two_files(installing(*FORMS["named"])) | {"tests/test_it.py": use}
    result = migrate(files, Options(unsafe_fixes=True))
    assert any("`forward_with_log_probs` is named in tests/test_it.py" in one.text for one in result.plan.remarks)
    assert "attach" not in result.files["pkg/patches.py"].decode()


def test_a_function_that_is_installed_twice() -> None:
    own = composed((GOLDEN / "instance.in.py").read_bytes())
    twice = (
        own + b"\n\ndef again(model: GPTModel):\n    model.forward = forward_with_log_probs.__get__(model, GPTModel)\n"
    )
    result = migrate({"a.py": twice}, Options(unsafe_fixes=True))
    assert not result.after
    assert result.files["a.py"].count(b"attach(model, forward_with_log_probs") == 2
    hybrid = b"from megatron.core.models.hybrid.hybrid_model import HybridModel\n"
    other = twice.replace(b"again(model: GPTModel)", b"again(model: HybridModel)").replace(
        b"from megatron", hybrid + b"from megatron", 1
    )
    result = migrate({"a.py": other}, Options(unsafe_fixes=True))
    assert b"attach" not in result.files["a.py"]
    assert any("installs `forward_with_log_probs` as another method" in one.text for one in result.plan.remarks)


def test_two_copies_of_a_file_go_together() -> None:
    """Each of them would be in the way of the other."""
    first, second = (composed((GOLDEN / f"{name}.in.py").read_bytes()) for name in ("instance", "nothing_before"))
    result = migrate({"a.py": first + b"\n\n" + second}, Options(unsafe_fixes=True))
    assert not result.after
    third = composed((GOLDEN / "noop_asks_for_rotary.in.py").read_bytes())
    result = migrate({"a.py": first + b"\n\n" + second + b"\n\n" + third}, Options(unsafe_fixes=True))
    assert len(result.after) == 3
    assert sum("the hook goes through it: move that patch first" in one.text for one in result.plan.remarks) == 2


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
    assert "runs before the decoder's output and is not in any release's forward" in told


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


@pytest.mark.parametrize(
    "end",
    [
        "    if self.post_process:\n        return self.output_layer(hidden_states)[0]\n    return hidden_states\n",
        "    return self.output_layer(hidden_states)[0] if self.post_process else hidden_states\n",
    ],
)
def test_an_end_that_asks_for_its_stage_is_told_to_leave_early(end: str) -> None:
    own = "    if not self.post_process:\n        return hidden_states\n"
    own += "    return self.values(hidden_states).squeeze(-1).transpose(0, 1)\n"
    (told,) = changed("values", own, end)
    assert "write `if not self.post_process: return hidden_states` before it, then migrate again" in told


def test_what_a_copy_says_that_it_returns_stays() -> None:
    own = composed((GOLDEN / "instance.in.py").read_bytes()).replace(
        b"temperature=1.0,\n):", b"temperature=1.0,\n) -> Any:"
    )
    new = migrate({"a.py": own}, Options(unsafe_fixes=True)).files["a.py"].decode()
    assert re.search(r"def forward_with_log_probs\([^)]*\) -> Any:\n", new)


def test_code_for_inference_stays() -> None:
    own = composed((GOLDEN / "undone.in.py").read_bytes())
    line = b"    logits, _ = self.output_layer(hidden_states)\n"
    changed = own.replace(line, b"    if inference_context is not None:\n        return hidden_states[-1:]\n" + line)
    (remark,) = migrate({"a.py": changed}, Options(unsafe_fixes=True)).plan.remarks
    assert "asks for `inference_context`: inference calls do not reach a processor" in remark.text
    assert re.search(r", and what keeps and restores the original \(line \d+(, \d+)+\)", remark.text)


@pytest.mark.parametrize("name", ["process_mtp_loss", "MTPLossAutoScaler", "MTPLossLoggingHelper", "roll_tensor"])
def test_mtp_in_its_own_way_stays(name: str) -> None:
    own = composed((GOLDEN / "undone.in.py").read_bytes())
    line = b"    logits, _ = self.output_layer(hidden_states)\n"
    changed = own.replace(line, f"    {name}(hidden_states)\n".encode() + line)
    (remark,) = migrate({"a.py": changed}, Options(unsafe_fixes=True)).plan.remarks
    assert f"has MTP code of its own (`{name}`)" in remark.text
