"""What hook and shim cost per micro-batch beside veRL's own patch: Python calls, and time until the host is done.

    PYTHONPATH=tests/compat:tests python benchmarks/hook_overhead.py VERL [--tokens N] [--hidden H] [--vocab V]

VERL is the folder of an unpacked veRL wheel, or a checkout. On a CPU veRL's kernel is a stand-in (log-softmax of whole
logits), so that only the calls and the small sizes say something there.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from downstream.verl import verl_files
from harness.models import Case, build_model, start_world

import mcore_unpatch.compat
from mcore_unpatch.compat import find_language_model
from mcore_unpatch.compat.verl import model_forward_fused as ours

OWN = str(Path(mcore_unpatch.compat.__file__).parent)
ROUNDS = 30


def calls_of(function: Callable[[], Any], folder: str) -> Counter[str]:
    """How often each Python function in `folder` is called."""
    seen: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(folder):
            seen[frame.f_code.co_qualname] += 1

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return seen


def milliseconds(ways: dict[str, Callable[[], Any]], device: torch.device) -> dict[str, tuple[float, float]]:
    """Median time until the call returns, and until the device is done; the ways in turn, round by round."""
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(ROUNDS):
        for name, way in ways.items():
            wait()
            start = time.perf_counter()
            way()
            returned = time.perf_counter()
            wait()
            times[name].append((returned - start, time.perf_counter() - start))
    return {
        name: (1e3 * statistics.median(a for a, _ in pairs), 1e3 * statistics.median(b for _, b in pairs))
        for name, pairs in times.items()
    }


def compare(verl: str, case: Case, device: torch.device) -> None:
    """Print one table."""
    model = build_model(case).to(device)
    ids = torch.randint(0, case.vocab, (case.batch, case.sequence), device=device)
    nested = torch.nested.as_nested_tensor(list(ids), layout=torch.jagged)
    arguments = (nested, nested, {}, 1.0, True, 0)
    positions = torch.arange(case.sequence, device=device).expand_as(ids)
    with verl_files(verl, kernel=device.type == "cuda") as load:
        theirs = load("model_forward_fused")
        forward = theirs.fused_forward_model_engine()
        mine = ours.fused_forward_model_engine()
        own = str(Path(theirs.__file__).parents[2])
        ways = {
            "the model alone, to its logits": lambda: model(ids, positions, None),
            "veRL's own": lambda: forward(model, *arguments),
            "the shim": lambda: mine(model, *arguments),
        }
        theirs.patch_fused_forward(model)
        patched = milliseconds({"veRL's own": ways["veRL's own"]}, device)
        calls = sum(calls_of(ways["veRL's own"], own).values())
        theirs.unpatch_fused_forward(model)
    rows = [("veRL's own", calls, *patched["veRL's own"])]
    del ways["veRL's own"]
    measured = milliseconds(ways, device)
    for name, way in ways.items():
        seen = calls_of(way, OWN)
        rows.append((name, sum(seen.values()), *measured[name]))
        if name == "the shim":
            print(f"searches for the language model: {seen[find_language_model.__name__]}")
            print("most called:", ", ".join(f"{name} {number}" for name, number in seen.most_common(12)))
    print(f"\n{case.batch} x {case.sequence} tokens, hidden {case.hidden}, vocabulary {case.vocab}, {device.type}")
    print("| | Python calls of its own | ms until it returns | ms until done |\n|---|---|---|---|")
    for name, number, returned, done in rows:
        print(f"| {name} | {number} | {returned:.2f} | {done:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verl")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--vocab", type=int, default=32000)
    chosen = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        from harness.cpu import on_the_cpu
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        torch.distributed.init_process_group(
            "nccl" if device.type == "cuda" else "gloo", init_method=f"file://{folder}/store", rank=0, world_size=1
        )
        with on_the_cpu() if device.type == "cpu" else nullcontext(), mock.patch.dict("os.environ"):
            case = Case(dtype=torch.bfloat16, hidden=chosen.hidden, vocab=chosen.vocab, batch=2)
            case = Case(**{**vars(case), "sequence": chosen.tokens // 2})
            start_world(case)
            compare(chosen.verl, case, device)
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
