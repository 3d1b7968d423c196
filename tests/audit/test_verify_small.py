"""What `unpatch verify` decides and writes, without a model: its settings, its table, which rank's row counts."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from mcore_unpatch.commands import verify as command
from mcore_unpatch.errors import UsageError
from mcore_unpatch.verify import measure, models
from mcore_unpatch.verify.measure import Row, _row
from mcore_unpatch.verify.models import Setting

KINDS = ["GPT", "GPT, tied", "GPT, MTP", "GPT, bf16", "Hybrid"]
WITHOUT_MTP = [name for name in KINDS if name != "GPT, MTP"]


@pytest.mark.parametrize(
    ("tp", "cp", "device", "names"),
    [(1, 1, "cpu", KINDS), (1, 1, None, KINDS), (2, 1, "cpu", WITHOUT_MTP), (1, 2, "cpu", WITHOUT_MTP)],
)
def test_the_settings(tp: int, cp: int, device: str | None, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    made = command._settings(tp, cp, device, None)
    assert [setting.name for setting in made] == names
    assert {(setting.tp, setting.cp, setting.device) for setting in made} == {(tp, cp, "cpu")}
    special = {(s.name, s.tied, s.mtp, s.hybrid, s.dtype) for s in made if s.name != "GPT, MTP"}
    assert special == {
        ("GPT", False, False, False, "float32"),
        ("GPT, tied", True, False, False, "float32"),
        ("GPT, bf16", False, False, False, "bfloat16"),
        ("Hybrid", False, False, True, "float32"),
    }


def test_gpus_are_used_where_there_is_one_for_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert {setting.device for setting in command._settings(2, 1, None, None)} == {"cuda"}
    assert {setting.name for setting in command._settings(1, 2, "cuda", None)} == set(KINDS)
    assert {setting.device for setting in command._settings(2, 2, None, None)} == {"cpu"}
    with pytest.raises(UsageError, match="a GPU for each of 4 ranks, and there are 2; use --device cpu"):
        command._settings(2, 2, "cuda", None)
    with pytest.raises(UsageError, match="--device tpu: use cpu or cuda"):
        command._settings(1, 1, "tpu", None)


def test_heads_that_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--tp 3 does not divide"):
        command._settings(3, 1, "cpu", None)
    (tmp_path / "c.json").write_text('{"num_attention_heads": 8, "num_query_groups": 2, "hidden_size": 64}')
    with pytest.raises(UsageError, match="--tp 2 does not divide"):
        command._settings(2, 1, "cpu", tmp_path / "c.json")
    assert command._settings(1, 1, "cpu", tmp_path / "c.json")[0].values["num_query_groups"] == 1


ROWS = [Row("GPT", "loss", 1e-7, 2e-6), Row("GPT", "entropy", 3e-3, 1e-6), Row("Hybrid", "run", note="no such thing")]


def test_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    command._write(ROWS, Setting("GPT", tp=2), json=False)
    head, *table = capsys.readouterr().out.splitlines()
    assert head.endswith("cpu, TP 2, CP 1")
    told = [[word.strip() for word in line.split("│")[1:-1]] for line in table if line.startswith("│")]
    assert told == [
        ["GPT", "loss", "1.0e-07", "2.0e-06", "holds"],
        ["GPT", "entropy", "3.0e-03", "1.0e-06", "FAILS"],
        ["Hybrid", "run", "", "", "not run"],
    ]
    assert table[-1] == "Hybrid, run: no such thing"
    command._write(ROWS, Setting("GPT", cp=2), json=True)
    data = json.loads(capsys.readouterr().out)
    assert data["version"] == 1
    assert data["layout"] == {"tp": 1, "cp": 2, "device": "cpu"}
    assert [row["verdict"] for row in data["rows"]] == ["holds", "FAILS", "not run"]
    assert sorted(data["versions"]) == ["megatron-core", "torch"]


def test_the_worst_of_several_tensors_is_the_row() -> None:
    truth = {f"gradients of {name}": torch.ones(4, dtype=torch.float64) for name in "abc"} | {"entropy": torch.ones(1)}
    ours = {name: value + {"b": 1e-3, "c": 1e-5}.get(name[-1], 0.0) for name, value in truth.items()}
    row = _row(Setting("GPT"), "gradients", ours, truth, truth, 1e-4)
    assert (row.setting, row.quantity, row.verdict) == ("GPT", "gradients", "FAILS")
    assert row.error == pytest.approx(1e-3)
    assert row.tolerance == pytest.approx(1e-4)
    # What the default path itself errs is allowed twice.
    assert _row(Setting("GPT"), "gradients", ours, ours, truth, 1e-4).tolerance == pytest.approx(2.1e-3)
    nan = {**ours, "gradients of a": torch.full((4,), torch.nan)}
    assert _row(Setting("GPT"), "gradients", nan, truth, truth, 1e-4).verdict == "FAILS"
    assert _row(Setting("GPT"), "gradients", truth, truth, truth, 1e-4).verdict == "holds"


# A field for each word that says where and how fast.
OURS = (
    "tensor_model_parallel_size", "params_dtype", "cross_entropy_fusion_impl", "recompute_method", "fp8_recipe",
    "fp4", "offload_modules", "overlap_dispatch_backward_with_experts_wgrad", "cuda_graph_use_single_mempool",
    "deallocate_pipeline_outputs", "batch_p2p_comm", "hidden_dropout", "deterministic_mode", "init_method_std",
    "barrier_with_L1_time", "attention_backend", "num_moe_experts", "timers", "delay_wgrad_compute",
    "defer_embedding_wgrad_compute", "bf16", "fp16", "persist_layer_norm",
    "num_microbatches_with_partial_activation_checkpoints", "grad_scale_func", "enable_autocast",
    "inference_rng_tracker", "tp_comm_bulk_wgrad", "cpu_offloading", "perform_initialization",
)  # fmt: skip


def test_what_says_where_and_how_fast_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text(json.dumps({**dict.fromkeys(OURS, 1), "normalization": "RMSNorm", "rotary_interleaved": None}))
    values, left_out = models.read(file)
    assert left_out == sorted(OURS)
    assert values == {
        "normalization": "RMSNorm",
        "num_attention_heads": 4,
        "num_query_groups": 4,
        "hidden_size": 64,
        "num_layers": 2,
    }


@pytest.mark.parametrize(
    ("given", "small"),
    [
        ({"num_attention_heads": 32, "num_query_groups": 8}, {"num_attention_heads": 4, "num_query_groups": 1}),
        ({"num_attention_heads": 8, "num_query_groups": 4}, {"num_attention_heads": 4, "num_query_groups": 2}),
        ({"num_attention_heads": 2}, {"num_attention_heads": 2, "num_query_groups": 2, "hidden_size": 32}),
        ({"hidden_size": 4096, "ffn_hidden_size": 16384}, {"ffn_hidden_size": 256}),
        ({"hidden_size": 4096, "ffn_hidden_size": 64}, {"ffn_hidden_size": 16}),
        ({"ffn_hidden_size": 64}, {"ffn_hidden_size": 64}),
        ({"num_layers": 1}, {"num_layers": 1}),
        ({"num_layers": 61}, {"num_layers": 2}),
        ({"kv_channels": 128, "softmax_scale": 1.0, "window_size": [1, 1]}, {"hidden_size": 64}),
        ({"use_mup": True, "mup_base_hidden_size": 9}, {"use_mup": True, "mup_base_hidden_size": 32}),
        ({"mup_base_hidden_size": 9}, {}),
    ],
)
def test_the_small_model_has_the_same_proportions(given: dict[str, Any], small: dict[str, Any], tmp_path: Path) -> None:
    usual = {"num_attention_heads": 4, "num_query_groups": 4, "hidden_size": 64, "num_layers": 2}
    (tmp_path / "c.json").write_text(json.dumps(given))
    assert models.read(tmp_path / "c.json") == ({**usual, **small}, [])


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.json", "{", "cannot be parsed"),
        ("c.json", "[1]", "must hold the fields of a TransformerConfig by name"),
        ("c.toml", "= 1", "cannot be parsed"),
        ("c.json", '{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}', "TransformerConfig has no a, b, c, d, e\\."),
        ("none.json", None, "cannot be read: No such file"),
    ],
)
def test_a_file_of_values_that_is_none(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        models.read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"), [("c.toml", "num_layers = 1"), ("c.yaml", "num_layers: 1"), ("c.yml", "num_layers: 1")]
)
def test_the_formats_of_a_file_of_values(tmp_path: Path, name: str, text: str) -> None:
    if name != "c.toml":
        pytest.importorskip("yaml")
    (tmp_path / name).write_text(text)
    assert models.read(tmp_path / name)[0]["num_layers"] == 1


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (Setting("GPT"), {"num_layers": 2, "mtp_num_layers": None, "params_dtype": torch.float32, "bf16": False}),
        (Setting("Hybrid", hybrid=True), {"num_layers": 4, "mtp_num_layers": None}),
        (Setting("MTP", mtp=True), {"mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.3, "num_layers": 2}),
        (Setting("MTP", mtp=True, values={"mtp_num_layers": 2}), {"mtp_num_layers": 2}),
        (Setting("given", values={"mtp_num_layers": 2, "num_layers": 3}), {"mtp_num_layers": None, "num_layers": 3}),
        (Setting("half", dtype="bfloat16"), {"params_dtype": torch.bfloat16, "bf16": True, "fp16": False}),
        (Setting("half", dtype="float16"), {"params_dtype": torch.float16, "bf16": False, "fp16": True}),
        (Setting("split", tp=2, cp=2), {"tensor_model_parallel_size": 2, "context_parallel_size": 2}),
        (Setting("other", values={"hidden_size": 32, "num_attention_heads": 2}), {"hidden_size": 32}),
    ],
)
def test_the_configuration_of_a_setting(setting: Setting, expected: dict[str, Any]) -> None:
    config = models.config_of(setting)
    assert {name: getattr(config, name) for name in expected} == expected
    always = {"use_cpu_initialization": True, "hidden_dropout": 0.0, "attention_dropout": 0.0, "add_bias_linear": False}
    fusions = ("gradient_accumulation", "masked_softmax", "bias_dropout", "bias_activation", "apply_rope")
    always |= {"persist_layer_norm": False, **{f"{name}_fusion": False for name in fusions}}
    assert {name: getattr(config, name) for name in always} == always


def test_a_batch_is_the_same_every_time_and_split_over_ranks() -> None:
    whole = models.batch(Setting("GPT", vocab=10), 0)
    assert {name: tuple(value.shape) for name, value in whole.items() if value is not None} == dict.fromkeys(
        ("input_ids", "position_ids", "labels", "loss_mask"), (2, 16)
    )
    assert whole["attention_mask"] is None
    assert whole["position_ids"].tolist() == [list(range(16))] * 2
    assert whole["loss_mask"].min() == 1
    assert 0 <= min(whole[name].min() for name in ("input_ids", "labels")) < 2
    assert 8 <= max(whole[name].max() for name in ("input_ids", "labels")) < 10
    again = models.batch(Setting("GPT", vocab=10), 0)
    assert all(torch.equal(whole[name], again[name]) for name in ("input_ids", "labels"))
    assert not torch.equal(whole["input_ids"], whole["labels"])
    second = models.batch(Setting("GPT", cp=2, vocab=10), 1)
    assert second["position_ids"].tolist() == [list(range(4, 12))] * 2
    assert torch.equal(second["labels"], whole["labels"][:, 4:12])


def test_what_rounding_may_do() -> None:
    eps = torch.finfo(torch.float32).eps
    assert measure.tolerance(torch.float32, 16) == eps * 12
    assert measure.tolerance(torch.float64, 16) == eps * 12
    assert measure.tolerance(torch.bfloat16, 16) == 2**-7 + eps * 12
    three, four = torch.tensor([3.0]), torch.tensor([4.0])
    assert measure.distance(three, four) == 0.25
    assert measure.distance(three, four, floor=10.0) == 0.1
    assert measure.distance(three, torch.zeros(1)) == 3.0


def test_a_row_holds_fails_or_was_not_measured() -> None:
    assert [row.verdict for row in ROWS] == ["holds", "FAILS", "not run"]
    assert Row("GPT", "loss", 1.0, 1.0).verdict == "holds"
    assert Row("GPT", "loss").verdict == "holds"
    assert Row("GPT", "loss", float("nan"), 1.0).verdict == "FAILS"
    assert measure._excess(Row("GPT", "loss", 1.0, 4.0)) == 0.25
    assert measure._excess(Row("GPT", "loss", 1.0)) == measure._excess(Row("GPT", "loss", float("nan"), 1.0))
    assert measure._excess(Row("GPT", "loss", 1.0)) == float("inf")
