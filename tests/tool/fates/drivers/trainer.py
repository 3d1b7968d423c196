"""Cases that patch Megatron's own trainer, in the releases whose wheel has it."""

import contextlib
import io
from types import SimpleNamespace
from typing import Any

from effects import beside_plain
from models import start_world


def quiet_last_rank(stage: Any) -> Any:
    def printed() -> Any:
        from megatron.training.utils import print_rank_last

        start_world()
        with contextlib.redirect_stdout(io.StringIO()) as output:
            print_rank_last("loss 1.0")
        return output.getvalue()

    return beside_plain(stage, printed)


def flops_of_our_model(stage: Any) -> Any:
    def run() -> Any:
        from megatron.training import training

        args = SimpleNamespace(seq_length=8, hidden_size=16)
        if stage.module is None:
            return 6 * 8 * 2 * 16**2  # Megatron's own count asks for every argument of a trainer
        lengths = {"seqlen_squared_sum_in_batch": None, "total_real_tokens_in_batch": None}
        # as megatron/training/training.py calls it in training_log: with these keywords since 0.18
        return training.num_floating_point_operations(args, 2, **(lengths if stage.release >= "0.18" else {}))

    return beside_plain(stage, run)
