"""One small repository and all that the commands say of it, word for word: two of everything, a test among them."""

from pathlib import Path

import pytest
from command import unpatch
from repository import Repository

A = """\
import megatron.core.utils
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.moe import router
from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper
from megatron.core.utils import get_thd_batch_on_this_cp_rank


def save_to_aux_losses_tracker(name, loss, layer_number, num_layers):
    return loss


router.save_to_aux_losses_tracker = save_to_aux_losses_tracker


def clean():
    MTPLossLoggingHelper.clean_loss_in_tracker()
    MTPLossLoggingHelper.clean_loss_in_tracker()


def unwrap(model: GPTModel):
    return megatron.core.utils.get_model_config(model)
"""
B = """\
from a import GPTModel, clean


def forward(self, input_ids, position_ids, attention_mask, **kwargs):
    return self.decoder(input_ids, **kwargs)


GPTModel.forward = forward


class Mine(GPTModel):
    def _postprocess(self, hidden_states, *args):
        return super()._postprocess(hidden_states, *args)
"""
FILES = {"a.py": A, "b.py": B, "tests/test_b.py": B, "requirements.txt": "megatron-core==0.16.1\n"}
SAID = {
    "upgrade --to 0.19 --all .": """\
2 patches and 10 uses of Megatron Core, on the way to 0.19.2
You run 0.16.1.

                                                      next
patch                                        0.16.1   0.19.2   Hybrid
a.py:12  router.save_to_aux_losses_tracker   RAISES   RAISES   acts     stays
b.py:8  GPTModel.forward                     ok       differs  dead     stays
Hybrid: what a patch does when the model is a HybridModel. acts 1, dead 1.
  b.py:8  GPTModel.forward does nothing: HybridModel has methods and imports of
      its own.

Raises on what you run today (1)
  a.py:12  when it is called  0.16.1
      TypeError: `TopKRouter.attach_and_log_load_balancing_loss` passes
      `reduce_group`, `reduce_group_has_dp`, and the replacement does not fit.

Raises on 0.19.2 (2)
  a.py:5  when the file is imported  0.19.2
      ImportError: `utils.get_thd_batch_on_this_cp_rank` is gone since 0.18.0.
  a.py:16,17  when it is called  0.19.2
      AttributeError: `MTPLossLoggingHelper.clean_loss_in_tracker` is gone since
      0.19.0. It is now `MTPLossLoggingHelper.clean_metrics_in_tracker`.

Numbers differ on 0.19.2 (2)
  a.py:12  0.19.2
      Nobody calls `router.save_to_aux_losses_tracker` any more;
      `TopKRouter.apply_z_loss` did.
  b.py:8  0.19.2
      `GPTModel.forward` changed, and the replacement never calls it.

""",
    "upgrade --matrix 0.16..0.19.2 .": """\
Places that raise, seen from megatron-core 0.16.1

  0.16.0       1  a.py:12
  0.16.1       1  in use, a.py:12
  0.17.0       1  a.py:12
  0.17.1       1  a.py:12
  0.18.0       1  a.py:5
  0.18.2       1  a.py:5
  0.19.0       3  a.py:5, a.py:16, a.py:17
  0.19.2       3  a.py:5, a.py:16, a.py:17

No range to recommend: places raise on megatron-core 0.16.1, which is in use, or
it is not in this range. Tests were left out.
""",
    "stacks .": """\
0.16.1  certain
  requirements.txt:1  requirements

Judged for megatron-core 0.16.1: requirements.txt:1.
""",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    top = tmp_path_factory.mktemp("whole")
    Repository(top).commit(FILES)
    return top


@pytest.mark.parametrize("command", SAID)
def test_what_is_said(command: str, folder: Path) -> None:
    assert unpatch(*command.split(), cwd=folder).out == SAID[command]


def test_the_lock(folder: Path) -> None:
    told = unpatch("pin", ".", cwd=folder)
    lock = folder / "unpatch.lock"
    text = lock.read_text()
    lock.unlink()
    assert told.out.startswith(
        "unpatch.lock pins 2 names that 2 patches replace, for megatron-core 0.16.1; 0\nchanged."
    )
    tables = [table.splitlines() for table in text.split("[[pin]]\n")[1:]]
    assert [[line.partition(" = ")[0] for line in table if line] for table in tables] == [
        ["name", "digest", "where"]
    ] * 2
    assert [(table[0], table[2]) for table in tables] == [
        ('name = "megatron.core.models.gpt.gpt_model.GPTModel.forward"', 'where = ["b.py"]'),
        ('name = "megatron.core.transformer.moe.router.save_to_aux_losses_tracker"', 'where = ["a.py"]'),
    ]
