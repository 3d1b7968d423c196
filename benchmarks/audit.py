"""What the audit costs: `audit()`, `forbid()`, `hook_works()`, and a start with `watch()` beside one without.

python benchmarks/audit.py
"""

import json
import statistics
import subprocess
import sys

IN_PROCESS = """
import json, os, sys, tempfile, time, warnings
warnings.simplefilter("ignore")
answers = os.dup(1)
os.dup2(2, 1)
import torch
from megatron.core import parallel_state
from megatron.core.models.hybrid.hybrid_model import HybridModel
from mcore_unpatch import audit
from mcore_unpatch.verify.models import Setting, build

torch.distributed.init_process_group("gloo", init_method="file://" + tempfile.mktemp(), rank=0, world_size=1)
parallel_state.initialize_model_parallel()
model = build(Setting("gpt"))

def seconds(call, *args, **kwargs):
    start = time.perf_counter()
    call(*args, **kwargs)
    return time.perf_counter() - start

said = {
    "audit(model)": seconds(audit.audit, model),
    "audit(model, files=False)": seconds(audit.audit, model, files=False),
    "forbid()": seconds(audit.forbid),
    "forbid('GPTModel')": seconds(audit.forbid, "GPTModel"),
    "expect and forbid of one method, again": seconds(audit.forbid, "GPTModel.forward"),
    "hook_works(model)": seconds(audit.hook_works, model),
}
os.write(answers, json.dumps(said).encode())
"""
START = """
import time
start = time.process_time()
{watch}
import torch, megatron.core
from megatron.core.models.hybrid.hybrid_model import HybridModel
from megatron.core.models.gpt.gpt_model import GPTModel
print(time.process_time() - start)
"""
WATCH = "from mcore_unpatch import audit; audit.watch()"
ROUNDS = 3


def child(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    rounds = [json.loads(child(IN_PROCESS)) for _ in range(ROUNDS)]
    for name in rounds[0]:
        print(f"| `{name}` | {statistics.median(one[name] for one in rounds):.3f} |")
    plain, watched = [], []
    for _ in range(ROUNDS):  # by turns: the machine is not alone
        plain.append(float(child(START.format(watch=""))))
        watched.append(float(child(START.format(watch=WATCH))))
    print(f"| import of torch and Megatron | {statistics.median(plain):.1f} |")
    print(f"| the same with `watch()` | {statistics.median(watched):.1f} |")


if __name__ == "__main__":
    main()
