"""What `unpatch verify` decides and writes, without a model: its settings, its table, which rank's row counts."""

import inspect
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
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


def test_one_rank_is_the_default() -> None:
    defaults = {name: one.default for name, one in inspect.signature(command.verify).parameters.items()}
    assert defaults == {"tp": 1, "cp": 1, "device": None, "model_config": None, "json": False}


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


class Answers:
    """A rank's queue."""

    def __init__(self, *answers: Any) -> None:
        self.answers = [*answers]

    def empty(self) -> bool:
        return not self.answers

    def get(self) -> Any:
        return self.answers.pop(0)


class Rank:
    """A rank that ended."""

    exitcode = 7

    def is_alive(self) -> bool:
        return False


def test_of_all_ranks_the_worst_row_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def rows(*answers: Any) -> list[Row]:
        return measure._collected(Setting("GPT"), [Rank() for _ in answers], [Answers(*answer) for answer in answers])

    small, large, unmeasured = Row("GPT", "loss", 1.0, 2.0), Row("GPT", "loss", 3.0, 4.0), Row("GPT", "loss", 0.0, 0.0)
    nan, other = Row("GPT", "loss", float("nan"), 2.0), Row("GPT", "entropy", 1.0, 9.0)
    assert rows([[small, other]], [[large]]) == [large, other]
    assert rows([[large]], [[small]]) == [large]
    assert rows([[large]], [[nan]], [[small]]) == [nan]
    assert rows([[large]], [[unmeasured]]) == [unmeasured]
    assert rows([[large]], ["ValueError: no"]) == [Row("GPT", "run", note="ValueError: no")]
    assert rows([[large]], []) == [Row("GPT", "run", note="a rank ended with exit code 7")]
    monkeypatch.setattr(measure, "LIMIT", -1.0)
    assert rows([]) == [Row("GPT", "run", note="not done after -1 s")]


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


def test_a_setting_by_its_name_alone() -> None:
    assert Setting("GPT") == Setting("GPT", False, False, False, 1, 1, "float32", "cpu", 96, {})


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


def test_norms_and_attention_are_those_of_torch() -> None:
    config: Any = SimpleNamespace(normalization="RMSNorm", params_dtype=torch.float64)
    norm = models.norm_of(config, 4)
    assert isinstance(norm, torch.nn.RMSNorm)
    assert (norm.eps, norm.weight.dtype, tuple(norm.weight.shape)) == (1e-5, torch.float64, (4,))
    config.normalization = "LayerNorm"
    assert isinstance(models.norm_of(config, 4, eps=1e-3), torch.nn.LayerNorm)
    alone: Any = SimpleNamespace(cp=SimpleNamespace(size=lambda: 1, rank=lambda: 0))
    attention = models.CausalAttention(config, alone)
    generator = torch.Generator().manual_seed(1)
    shapes = ((5, 2, heads, 3) for heads in (4, 2, 2))  # [s, b, heads, d]
    query, key, value = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    found = attention(query, key, value, None)
    expected = torch.empty_like(query)
    for place, sample, head in itertools.product(range(5), range(2), range(4)):
        keys, values = (x[: place + 1, sample, head // 2] for x in (key, value))
        weights = (keys @ query[place, sample, head] / 3**0.5).softmax(0)
        expected[place, sample, head] = weights @ values
    torch.testing.assert_close(found, expected.flatten(2))


def test_what_rounding_may_do() -> None:
    eps = torch.finfo(torch.float32).eps
    assert measure.tolerance(torch.float32, 16) == eps * 12
    assert measure.tolerance(torch.float64, 16) == eps * 12
    assert measure.tolerance(torch.bfloat16, 16) == 2**-7 + eps * 12
    three, four = torch.tensor([3.0]), torch.tensor([4.0])
    assert measure.distance(three, four) == 0.25
    assert measure.distance(three, four, floor=10.0) == 0.1
    assert measure.distance(three, torch.zeros(1)) == 3.0


def test_a_parameter_without_a_gradient_has_one_of_zeros() -> None:
    model = torch.nn.Linear(2, 1)
    model.weight.grad = torch.ones(1, 2)
    found = measure._gradients(model)
    assert {name: value.tolist() for name, value in found.items()} == {
        "gradients of weight": [[1.0, 1.0]],
        "gradients of bias": [0.0],
    }
    assert found["gradients of weight"] is not model.weight.grad


@pytest.mark.parametrize(
    ("device", "platform", "way"),
    [("cpu", "linux", "fork"), ("cuda", "linux", "spawn"), ("cpu", "darwin", "spawn"), ("cuda", "darwin", "spawn")],
)
def test_ranks_are_forked_where_that_is_sound(
    monkeypatch: pytest.MonkeyPatch, device: str, platform: str, way: str
) -> None:
    class AskedError(Exception):
        pass

    def asked(method: str) -> Any:
        raise AskedError(method)

    monkeypatch.setattr(measure.sys, "platform", platform)
    monkeypatch.setattr(torch.multiprocessing, "get_context", asked)
    with pytest.raises(AskedError, match=way):
        next(measure.run([Setting("GPT", device=device)], print))  # type: ignore[arg-type]


@pytest.mark.parametrize("tied", [False, True])
def test_how_a_hybrid_model_is_built(monkeypatch: pytest.MonkeyPatch, tied: bool) -> None:
    given: list[Any] = []

    def hybrid(config: Any, common: dict[str, Any]) -> Any:
        given.append((config.num_layers, common))
        return torch.nn.Linear(1, 1)

    monkeypatch.setattr(models, "_hybrid", hybrid)
    model = models.build(Setting("Hybrid", hybrid=True, tied=tied, dtype="bfloat16"))
    assert (model.weight.dtype, models.build(Setting("Hybrid", hybrid=True), torch.float64).weight.dtype) == (
        torch.bfloat16,
        torch.float64,
    )
    common = {"vocab_size": 96, "max_sequence_length": 16, "share_embeddings_and_output_weights": tied}
    assert given[0] == (4, common | {"position_embedding_type": "none"})
    weights = []
    for seed in (1, 2):  # whatever was drawn before
        torch.manual_seed(seed)
        weights.append(models.build(Setting("Hybrid", hybrid=True)).weight)
    assert torch.equal(*weights)


@pytest.mark.parametrize("hidden", [8, 64])
def test_the_tolerance_grows_with_the_longest_sum(monkeypatch: pytest.MonkeyPatch, hidden: int) -> None:
    numbers = dict.fromkeys(("log-probs", "entropy", "gradients of a"), torch.ones(1))
    model = SimpleNamespace(config=SimpleNamespace(hidden_size=hidden), state_dict=dict, load_state_dict=dict.copy)
    for name in ("through_the_hook", "default_path"):
        monkeypatch.setattr(measure, name, lambda *_: numbers)
    monkeypatch.setattr(measure, "build", lambda *_: model)
    monkeypatch.setattr(measure, "batch", lambda *_: {})
    monkeypatch.setattr("megatron.core.parallel_state.get_context_parallel_rank", lambda: 0)
    for vocab in (16, 96):
        rows = measure.measured(Setting("GPT", vocab=vocab))
        assert [row.quantity for row in rows] == ["log-probs", "entropy", "gradients"]
        assert {row.tolerance for row in rows} == {measure.tolerance(torch.float32, 16 * max(hidden, vocab))}


def test_the_loss_weighs_every_position_and_both_results() -> None:
    ones = torch.ones(2, 3, dtype=torch.float64)
    log_probs, entropy = ones.clone().requires_grad_(), ones.float().requires_grad_()
    loss = measure._loss(log_probs, entropy)
    assert torch.equal(loss, measure._loss(log_probs, entropy))
    a, b = torch.autograd.grad(loss, (log_probs, entropy))
    for weights in (a, b):
        assert (weights != 0).all()
        assert len(weights.unique()) == 6
    drawn = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(a, drawn[0].double() / 6)
    torch.testing.assert_close(b, drawn[1] * 0.3 / 6)


def test_a_row_holds_fails_or_was_not_measured() -> None:
    assert [row.verdict for row in ROWS] == ["holds", "FAILS", "not run"]
    assert Row("GPT", "loss", 1.0, 1.0).verdict == "holds"
    assert Row("GPT", "loss").verdict == "holds"
    assert Row("GPT", "loss", float("nan"), 1.0).verdict == "FAILS"
    assert measure._excess(Row("GPT", "loss", 1.0, 4.0)) == 0.25
    assert measure._excess(Row("GPT", "loss", 1.0)) == measure._excess(Row("GPT", "loss", float("nan"), 1.0))
    assert measure._excess(Row("GPT", "loss", 1.0)) == float("inf")
