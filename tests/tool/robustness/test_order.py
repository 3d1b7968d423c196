"""What is reported depends on the files alone: not on the order in which sets are walked."""

from pathlib import Path

import pytest
from command import unpatch_process
from repository import GIT, Repository


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["scan", "--output-format", "json"],
        ["migrate", "--diff"],
    ],
    ids=" ".join,
)
def test_the_report_is_the_same_whatever_the_order_of_sets(command: list[str], tmp_path: Path) -> None:
    several = (
        "from megatron.core.models.gpt import GPTModel\n"
        "from megatron.core.transformer.mlp import MLP\n"
        "def fast(self, input_ids, position_ids, attention_mask, labels=None, **kwargs):\n"
        "    return self.log_probs(self.decoder(input_ids), labels)\n"
        "GPTModel.forward = MLP.forward = fast; GPTModel._postprocess = print  # unpatch: ignore[MCU9]\n"
        "setattr(GPTModel, 'forward', fast); setattr(MLP, 'forward', fast)\n"
    )
    repository = Repository(tmp_path)
    repository.commit({"plain.py": "x = 1\n"})
    for number in range(6):
        broken = b"import megatron.core\nmegatron.core.forward = (\n"
        repository.write({f"p{number}/a.py": several, f"p{number}/c.py": broken})
    repository.commit(
        {"fix.patch": "--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -1 +1 @@\n-a\n+b\n"}
    )
    results = {unpatch_process(*command, cwd=tmp_path, env={**GIT, "PYTHONHASHSEED": seed}) for seed in ("0", "1")}
    assert len(results) == 1
    [(_, out, err)] = results
    assert "p5" in out + err
