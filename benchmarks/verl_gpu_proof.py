"""What only a GPU can show of the veRL shims: veRL's own Triton kernel, the 1F1B schedule, training, time and memory.

    PYTHONPATH=tests/compat python benchmarks/verl_gpu_proof.py VERL

VERL is the folder of an unpacked veRL wheel (0.9.1). megatron-core and this package must be importable.
"""

import argparse
import datetime
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import megatron.core
import torch
import triton
from downstream.comparing import Run, run
from downstream.overlap import MICRO_BATCHES, build_moe_model, micro_batches, step
from downstream.training import STEPS, TEMPERATURE, batch_at, from_logits, train
from downstream.verl import verl_files
from harness.faithful import in_float64
from harness.models import Case, build_model, start_world
from torch import Tensor

from mcore_unpatch.compat.verl import model_forward_fused as ours

CUDA = torch.device("cuda")
Forward = Callable[..., dict[str, Tensor]]


def arguments(batch: dict[str, Tensor]) -> tuple[Any, ...]:
    every = torch.ones_like(batch["attention_mask"])
    tensors = (batch[name] for name in ("input_ids", "position_ids", "attention_mask", "labels"))
    return (*tensors, every, TEMPERATURE, {})


def default_path(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    logits = model(batch["input_ids"], batch["position_ids"], None)
    log_softmax = (logits if logits.dtype == torch.float64 else logits.float()).div(TEMPERATURE).log_softmax(-1)
    log_probs = log_softmax.gather(-1, batch["labels"][..., None]).squeeze(-1)
    return {"entropy": -(log_softmax.exp() * log_softmax).sum(-1), "log_probs": log_probs}


def errors(one: Run, truth: Run) -> tuple[float, float, float]:
    """Relative norms: log-probs, entropy, and the largest among all gradients."""
    differences = one - truth
    gradients = [value for name, value in differences.items() if name.startswith("gradient")]
    return differences["log_probs"], differences["entropy"], max(gradients)


def kernel_against_shim(theirs: Any) -> None:
    print("\n## veRL's fused forward (its Triton kernel) and the shim, bf16, error against float64")
    print("| | log-probs | entropy | worst gradient |\n|---|---|---|---|")
    for tied in (False, True):
        case = Case(dtype=torch.bfloat16, hidden=256, vocab=5000, batch=4, sequence=128, tied=tied)
        model = build_model(case).to(CUDA)
        batch = batch_at(case, 0, CUDA)
        theirs.patch_fused_forward(model)
        exact = in_float64(case, model).to(CUDA)
        truth = run(exact, lambda exact=exact, batch=batch: default_path(exact, batch))
        ways: dict[str, Callable[[], dict[str, Tensor]]] = {
            "default path": lambda model=model, batch=batch: default_path(model, batch),
            "veRL": lambda model=model, batch=batch: theirs.fused_forward_model_gen()(model, *arguments(batch)),
            "shim": lambda model=model, batch=batch: ours.fused_forward_model_gen()(model, *arguments(batch)),
        }
        runs = {name: run(model, way) for name, way in ways.items()}
        pairs = {name: (one, truth) for name, one in runs.items()} | {"shim against veRL": (runs["shim"], runs["veRL"])}
        for name, pair in pairs.items():
            found = errors(*pair)
            print(f"| {name}{', tied' if tied else ''} | " + " | ".join(f"{value:.1e}" for value in found) + " |")


def time_and_memory(theirs: Any) -> None:
    case = Case(dtype=torch.bfloat16, hidden=2048, vocab=151936, batch=1, sequence=8192)
    model = build_model(case).to(CUDA)
    batch = batch_at(case, 0, CUDA)
    theirs.patch_fused_forward(model)
    forwards: dict[str, Forward] = {
        "default path": lambda: default_path(model, batch),
        "veRL": lambda: theirs.fused_forward_model_gen()(model, *arguments(batch)),
        "shim": lambda: ours.fused_forward_model_gen()(model, *arguments(batch)),
    }
    print(f"\n## Forward and backward of a 2-layer model, {case.sequence} tokens, {case.hidden=}, {case.vocab=}")
    print("| | ms, median of 3 | peak GiB above the start |\n|---|---|---|")
    for name, forward in forwards.items():
        times = []
        for _ in range(4):
            model.zero_grad()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            start = torch.cuda.memory_allocated()
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            out = forward()
            torch.autograd.backward(out["log_probs"].sum() + out["entropy"].sum())
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
            peak = torch.cuda.max_memory_allocated() - start
            del out
        print(f"| {name} | {statistics.median(times[1:]):.1f} | {peak / 2**30:.2f} |")


def three_way_training(theirs: Any) -> None:
    case = Case(hidden=128, vocab=1000, batch=4, sequence=64)

    def legacy(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        theirs.patch_fused_forward(model)
        out: dict[str, Tensor] = theirs.fused_forward_model_gen()(model, *arguments(batch))
        return out

    def shim(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        out: dict[str, Tensor] = ours.fused_forward_model_gen()(model, *arguments(batch))
        return out

    def default(model: Any, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return from_logits(model(batch["input_ids"], batch["position_ids"], None), batch["labels"])

    losses = {"default path": default, "veRL": legacy, "shim": shim}
    table = {name: train(case, path, CUDA) for name, path in losses.items()}
    print(f"\n## {STEPS} steps of AdamW in float32 from the same seed: the loss")
    print("| step | " + " | ".join(table) + " |\n|---|" + "---|" * len(table))
    for number in (0, 4, 9, 14, 19):
        print(f"| {number + 1} | " + " | ".join(f"{rows[number]:.6f}" for rows in table.values()) + " |")
    for name in ("veRL", "shim"):
        largest = max(abs(a - b) for a, b in zip(table[name], table["default path"], strict=True))
        print(f"largest difference from the default path, {name}: {largest:.1e}")


def staged(function: Callable[..., Any]) -> Callable[..., Any]:
    """The collective through host memory: two ranks share the one GPU here, which NCCL refuses."""

    def wrapper(output: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> None:
        on_host = torch.empty(output.shape, dtype=output.dtype)
        function(on_host, value.cpu(), *args, **kwargs)
        output.copy_(on_host)

    return wrapper


def overlap_rank(rank: int, store: str) -> None:
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.cuda.set_device(0)
    with collectives_through_the_host():
        lines = overlap_lines()
    if rank == 0:
        print(
            f"\n## Megatron's combined 1F1B schedule, {MICRO_BATCHES} micro-batches, 4 experts over 2 ranks, bf16, "
            "against plain forwards"
        )
        print("| model | log-probs and entropy | worst gradient | left on the model |\n|---|---|---|---|")
        print("\n".join(lines), flush=True)


@contextmanager
def collectives_through_the_host() -> Iterator[None]:
    all_gather = staged(torch.distributed.all_gather_into_tensor)
    with (
        mock.patch("torch.distributed.all_to_all_single", staged(torch.distributed.all_to_all_single)),
        mock.patch("torch.distributed.all_gather_into_tensor", all_gather),
        mock.patch("megatron.core.tensor_parallel.mappings.dist_all_gather_func", all_gather),
    ):
        yield


def overlap_lines() -> list[str]:
    lines = []
    for options in ({}, {"tied": True}, {"mtp": 1}):
        case = Case(dtype=torch.bfloat16, hidden=64, vocab=512, sequence=32, **options)
        model = build_moe_model(case).to(CUDA, case.dtype)
        batches = [
            {name: value.to(CUDA) if isinstance(value, Tensor) else value for name, value in batch.items()}
            for batch in micro_batches(case)
        ]
        plain, expected = step(model, batches, overlap=False, entropy=True)
        seen, gradients = step(model, batches, overlap=True, entropy=True)
        torch.cuda.synchronize()
        assert len(seen) == MICRO_BATCHES
        values = max(relative(a[name], b[name]) for a, b in zip(seen, plain, strict=True) for name in b)
        worst = max(relative(gradients[name], gradient) for name, gradient in expected.items())
        left = sorted({"forward", "_postprocess"} & set(vars(model)))
        lines.append(f"| {case} | {values:.1e} | {worst:.1e} | {left or 'nothing'} |")
        assert values < 1e-2, values
        assert worst < 5e-2, worst
        megatron.core.parallel_state.destroy_model_parallel()
    return lines


def relative(value: Tensor, other: Tensor) -> float:
    return float((value.double() - other.double()).norm() / other.double().norm().clamp(min=1e-3))


PARTS: dict[str, Callable[[Any], None]] = {
    "kernel": kernel_against_shim,
    "training": three_way_training,
    "time": time_and_memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verl", help="the folder of an unpacked veRL wheel")
    parser.add_argument("parts", nargs="*", default=[*PARTS, "overlap"], help=f"of {', '.join(PARTS)}, overlap")
    asked = parser.parse_args()
    print(
        f"{datetime.date.today()}, {torch.cuda.get_device_name()}, torch {torch.__version__}, triton "
        f"{triton.__version__}, megatron-core {megatron.core.__version__}, {Path(asked.verl).name}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        torch.distributed.init_process_group("nccl", init_method=f"file://{temporary}/one", rank=0, world_size=1)
        start_world(Case())
        with verl_files(asked.verl, kernel=True) as files:
            theirs = files("model_forward_fused")
            for name, part in PARTS.items():
                if name in asked.parts:
                    part(theirs)
        torch.distributed.destroy_process_group()
        if "overlap" in asked.parts:
            torch.multiprocessing.spawn(overlap_rank, (f"{temporary}/two",), nprocs=2)


if __name__ == "__main__":
    main()
