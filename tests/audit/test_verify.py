"""`unpatch verify`: the table holds here, and a wrong number fails it."""

import json
from pathlib import Path

import wrong_rows
from command import CLEAN, ERROR, MAIN, Result, checked, unpatch
from downloads import unpacked
from prepared import run_prepared

from mcore_unpatch.verify import measure
from mcore_unpatch.verify.measure import Row
from mcore_unpatch.verify.models import Setting

CONFIG = {
    "num_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_query_groups": 8,
    "ffn_hidden_size": 14336,
    "normalization": "RMSNorm",
    "gated_linear_unit": True,
    "tensor_model_parallel_size": 8,
}


def test_the_table_on_two_ranks_with_a_team_s_values(tmp_path: Path, processes: None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    arguments = ("verify", "--json", "--device", "cpu", "--cp", "2", "--model-config", "config.json")
    done = run_prepared(unpacked("megatron-core", "0.18.2"), MAIN, *arguments, cwd=tmp_path)
    result = checked(Result(done.returncode, done.stdout, done.stderr))
    assert result.code == CLEAN, result.out + result.err
    rows = result.json["rows"]
    assert {row["setting"] for row in rows} == {"GPT", "GPT, tied", "GPT, bf16", "Hybrid"}
    assert {row["verdict"] for row in rows} == {"holds"}
    assert len(rows) == 12
    assert "tensor_model_parallel_size" in result.err


def test_what_fails_is_told(processes: None) -> None:
    told = run_prepared(unpacked("megatron-core", "0.19.2"), Path(wrong_rows.__file__))
    assert told.stdout == "FAILS\n", told.stderr
    setting = Setting("GPT")
    ((row,),) = measure.run([setting], wrong_rows.not_a_number)
    assert row.verdict == "FAILS"
    assert Row("GPT", "loss", 1.0, 1.0).verdict == "holds"
    assert Row("GPT", "loss", note="no GPU").verdict == "not run"
    first, second = measure.run([setting, setting], wrong_rows.breaks)
    assert [row.note for row in (*first, *second)] == ["RuntimeError: no such thing"] * 2


def test_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden": 4}')
    for arguments, said in (
        (("--model-config", "config.json"), "TransformerConfig has no hidden"),
        (("--tp", "3", "--device", "cpu"), "does not divide"),
    ):
        result = unpatch("verify", *arguments, cwd=tmp_path)
        assert (result.code, said in result.err) == (ERROR, True), result.err
