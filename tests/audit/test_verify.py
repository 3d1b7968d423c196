"""`unpatch verify`: the table holds here, a wrong number fails it, and a legacy function runs beside ours."""

import json
import shutil
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, unpatch, unpatch_process
from downloads import unpacked
from programs import environment
from wrong_rows import breaks, not_a_number, wrong_by_a_little

from mcore_unpatch.verify import ranks
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
# What veRL's file imports of the rest of veRL; its kernel needs a GPU.
VERL = {
    "verl/__init__.py": "",
    "verl/models/__init__.py": "",
    "verl/models/mcore/__init__.py": "",
    "verl/models/mcore/util.py": """
        preprocess_packed_seqs = preprocess_thd_engine = None
        postprocess_packed_seqs_for_dict_output = postprocess_thd_engine = None
    """,
    "verl/utils/__init__.py": "",
    "verl/utils/kernel/__init__.py": "",
    "verl/utils/kernel/linear_cross_entropy.py": """
        def linear_cross_entropy(hidden, weight, labels, temperature, reduction, group):
            scores = ((hidden.flatten(0, -2) @ weight.T).float() / temperature).log_softmax(-1)
            chosen = scores.gather(-1, labels.reshape(-1, 1)).squeeze(-1)
            return chosen + WRONG, -(scores.exp() * scores).sum(-1)
    """,
    "verl/utils/megatron_utils.py": "from megatron.core.utils import unwrap_model\n",
    "verl/utils/model.py": "from types import SimpleNamespace as CausalLMOutputForPPO\n",
}


def test_the_table_on_two_ranks_with_a_team_s_values(tmp_path: Path, processes: None) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    arguments = ("verify", "--json", "--device", "cpu", "--cp", "2", "--model-config", "config.json")
    result = unpatch_process(*arguments, cwd=tmp_path, env=environment("0.18.2"))
    assert result.code == CLEAN, result.out + result.err
    rows = result.json["rows"]
    assert {row["setting"] for row in rows} == {"GPT", "GPT, tied", "GPT, bf16", "Hybrid"}
    assert {row["verdict"] for row in rows} == {"holds"}
    assert len(rows) == 12
    assert "tensor_model_parallel_size" in result.err


def test_what_fails_is_told(processes: None) -> None:
    setting = Setting("GPT")
    (rows,) = ranks.run([setting], wrong_by_a_little)
    assert all(row.fails for row in rows)
    ((row,),) = ranks.run([setting], not_a_number)
    assert row.fails
    first, second = ranks.run([setting, setting], breaks)
    assert [row.note for row in (*first, *second)] == ["RuntimeError: no such thing"] * 2


@pytest.mark.parametrize(("wrong", "verdict", "code"), [("0.0", "holds", 0), ("0.01", "FAILS", 1)])
def test_a_legacy_function_beside_ours(tmp_path: Path, wrong: str, verdict: str, code: int, processes: None) -> None:
    write_files(tmp_path, {name: text.replace("WRONG", wrong) for name, text in VERL.items()})
    file = "verl/models/mcore/model_forward_fused.py"
    shutil.copy(unpacked("verl", "0.8.0") / file, tmp_path / file)
    arguments = ("verify", "--json", "--device", "cpu", "--legacy", str(tmp_path))
    result = unpatch_process(*arguments, cwd=tmp_path, env=environment("0.19.2"))
    assert result.code == code, result.out + result.err
    row = result.json["rows"][-1]
    assert (row["quantity"], row["verdict"]) == ("log-probs, veRL's own", verdict), row


def test_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"hidden": 4}')
    for arguments, said in (
        (("--legacy", str(tmp_path)), "none of the legacy functions"),
        (("--model-config", "config.json"), "TransformerConfig has no hidden"),
        (("--tp", "3", "--device", "cpu"), "does not divide"),
    ):
        result = unpatch("verify", *arguments, cwd=tmp_path)
        assert (result.code, said in result.err) == (ERROR, True), result.err
