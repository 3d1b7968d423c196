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
From megatron-core 0.16.1 to 0.19.2

Will raise (2)
  a.py:5  ImportError when the file is imported
      `utils.get_thd_batch_on_this_cp_rank` does not exist after megatron-core
      0.17.1
  a.py:16,17  AttributeError when `clean` is called
      `MTPLossLoggingHelper.clean_loss_in_tracker` does not exist after
      megatron-core 0.18.2
      -> `MTPLossLoggingHelper.clean_metrics_in_tracker` is the closest match

Numbers may change (3)
  a.py:12  patch of router.save_to_aux_losses_tracker
      `save_to_aux_losses_tracker` does not exist after megatron-core 0.17.1, so
      no code of Megatron calls the replacement; `TopKRouter.apply_z_loss` of
      0.16.1 uses it: it stops without an error; it is now
      `megatron.core.transformer.moe.moe_utils.save_to_aux_losses_tracker`
  b.py:8  patch of GPTModel.forward
      body changed; the replacement does not call the original, so it does not
      have that change
  tests/test_b.py:8  patch of GPTModel.forward
      body changed; the replacement does not call the original, so it does not
      have that change

Read: 12 uses of Megatron in 3 files and 3 patches (1 in tests).
5 places need work before you can upgrade to megatron-core 0.19.2.
""",
    "upgrade --matrix 0.16..0.19.2 .": """\
Lines that raise, seen from megatron-core 0.16.1

  0.16.0       1  a.py:12
  0.16.1       1  in use, a.py:12
  0.17.0       1  a.py:12
  0.17.1       1  a.py:12
  0.18.0       1  a.py:5
  0.18.2       1  a.py:5
  0.19.0       2  a.py:5, a.py:16
  0.19.2       2  a.py:5, a.py:16

Read: 12 uses of Megatron in 3 files; tests are left out.
No range to recommend: lines raise on megatron-core 0.16.1, which is in use, or
it is not in this range.
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
        "unpatch.lock pins 2 names that 3 patches replace, for megatron-core 0.16.1; 0\nchanged."
    )
    tables = [table.splitlines() for table in text.split("[[pin]]\n")[1:]]
    assert [[line.partition(" = ")[0] for line in table if line] for table in tables] == [
        ["name", "digest", "where"]
    ] * 2
    assert [(table[0], table[2]) for table in tables] == [
        ('name = "megatron.core.models.gpt.gpt_model.GPTModel.forward"', 'where = ["b.py", "tests/test_b.py"]'),
        ('name = "megatron.core.transformer.moe.router.save_to_aux_losses_tracker"', 'where = ["a.py"]'),
    ]
