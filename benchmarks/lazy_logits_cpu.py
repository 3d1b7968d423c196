"""Peak memory of slime's log-probs and entropy on the CPU: from real logits, and from `LazyLogits`.

    PYTHONPATH=tests/compat python benchmarks/lazy_logits_cpu.py --slime CHECKOUT [--tokens 1024] [--vocab 32000 151936]

A real GPTModel in bf16 behind Float16Module, one packed row of four samples, half of each of them response. "peak" is
what torch's allocator held at the worst moment of forward, loss and backward, without parameters and their gradients.
"""

import argparse
import time
from argparse import Namespace
from typing import Any

import torch
from downstream.checkouts import loaded
from harness import run_on_ranks
from harness.models import Case, build_config, build_model, start_world
from harness.pool import shut_down
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.transformer.module import Float16Module
from torch.profiler import ProfilerActivity, profile

from mcore_unpatch.compat import DeferredHead, attach, slime as ours

SAMPLES = 4
ARGS = Namespace(rollout_temperature=0.8, entropy_coef=0.01, allgather_cp=False, log_probs_chunk_size=-1)
STAND_INS = {"slime.utils.http_utils": {"is_port_available": None}}
PATHS = ("slime, from logits", "slime, one import changed", "the shim")


def step(model: Any, batch: dict[str, Any], samples: dict[str, Any], function: Any) -> None:
    model.zero_grad(set_to_none=False)
    _, found = function(model(**batch), args=ARGS, with_entropy=True, **samples)
    (torch.cat(found["log_probs"]).sum() + 0.01 * torch.cat(found["entropy"]).sum()).backward()


def peak_bytes(*arguments: Any) -> int:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        step(*arguments)
    assert run.profiler is not None
    assert run.profiler.kineto_results is not None
    held = peak = 0
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def measure(case: Case, checkout: str) -> dict[str, tuple[float, float]]:
    """MiB and seconds of each path."""
    start_world(case)
    model = Float16Module(build_config(case), build_model(case))
    length = case.sequence // SAMPLES
    tokens = torch.randint(0, case.vocab, (1, case.sequence))
    bounds = torch.arange(0, case.sequence + 1, length, dtype=torch.int32)
    params = PackedSeqParams("thd", bounds, bounds, max_seqlen_q=length, max_seqlen_kv=length)
    positions = torch.arange(length).repeat(SAMPLES)[None]
    batch = {"input_ids": tokens, "position_ids": positions, "attention_mask": None, "packed_seq_params": params}
    totals, responses = [length] * SAMPLES, [length // 2] * SAMPLES
    told = {"unconcat_tokens": list(tokens[0].split(length)), "total_lengths": totals, "response_lengths": responses}
    found = {}
    with loaded(checkout, "slime", "slime.backends.megatron_utils.loss", STAND_INS) as theirs:
        for path in PATHS:
            if path != PATHS[0]:
                attach(model, DeferredHead())
                theirs.calculate_log_probs_and_entropy = ours.calculate_log_probs_and_entropy
            function = (ours if path == PATHS[2] else theirs).get_log_probs_and_entropy
            step(model, batch, told, function)  # gradients exist from here on
            peak = peak_bytes(model, batch, told, function)
            start = time.perf_counter()
            step(model, batch, told, function)
            found[path] = (peak / 2**20, time.perf_counter() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slime", required=True)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--vocab", type=int, nargs="+", default=[32_000, 151_936])
    options = parser.parse_args()
    print("| vocabulary | " + " | ".join(f"{path}: MiB, s" for path in PATHS) + " |")
    for vocab in options.vocab:
        case = Case(dtype=torch.bfloat16, hidden=256, vocab=vocab, sequence=options.tokens, batch=1)
        found = run_on_ranks("0.19.2", 1, measure, case, options.slime, limit=500.0)[0]
        print(f"| {vocab:,} | " + " | ".join(f"{mib:,.0f}, {s:.2f}" for mib, s in found.values()) + " |", flush=True)
    shut_down()


if __name__ == "__main__":
    main()
