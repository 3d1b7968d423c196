"""How many of compat's functions run in one `call_with_processor`, and in how many modules: the tiny model on a CPU.

python tools/count_calls.py
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType

import torch
from megatron.core import parallel_state

import mcore_unpatch.compat as compat

sys.path.append(str(Path(__file__).parents[1] / "examples"))  # at the end: there is an operator.py, too
from tiny_gpt import BATCH, LENGTH, VOCAB, tiny_model

seen: Counter[str] = Counter()  # calls by file


def note(frame: FrameType, event: str, _: object) -> None:
    """Count a call of a function of compat."""
    if event == "call" and frame.f_code.co_filename.startswith(str(Path(compat.__file__).parent)):
        seen[frame.f_code.co_filename] += 1


torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
parallel_state.initialize_model_parallel()
model, tokens = tiny_model(), torch.randint(0, VOCAB, (BATCH, LENGTH))
call = {"input_ids": tokens, "position_ids": torch.arange(LENGTH).expand_as(tokens), "attention_mask": None}
run, processor = compat.call_with_processor, compat.LogProbsAndEntropy(temperature=0.7)
for _ in range(2):  # what a first call looks up is kept
    seen.clear()
    sys.setprofile(note)
    run(model, processor, labels=tokens, **call)
    sys.setprofile(None)
torch.distributed.destroy_process_group()
print(f"{seen.total()} calls in {len(seen)} modules")
