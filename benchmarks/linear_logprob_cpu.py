"""Time and peak memory of `linear_logprob` against the materialised path, on the CPU.

    python benchmarks/linear_logprob_cpu.py [--dtype float32] [--threads 1] [--json FILE]

Both paths compute log-probs, entropy and all gradients of the same inputs in the same run. "peak" is what torch's
allocator held beyond inputs and gradients at the worst moment. Ratios are ours to theirs: below 1 is better.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from mcore_unpatch.compat import linear_logprob

Head = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
WIDTH = 256
# Growing tokens at one vocabulary, then growing vocabulary at one number of tokens.
SHAPES = [(tokens, 32_000) for tokens in (64, 256, 1024, 4096)]
SHAPES += [(256, vocab) for vocab in (8_000, 64_000, 151_936)]


def fused(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    logprobs, entropy = linear_logprob(hidden, weight, labels, entropy=True)
    assert entropy is not None
    return logprobs, entropy


def materialised(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    log_p = torch.nn.functional.linear(hidden, weight).float().log_softmax(-1)
    return log_p.gather(-1, labels[:, None]).squeeze(1), -(log_p.exp() * log_p).sum(-1)


def step(path: Head, hidden: Tensor, weight: Tensor, labels: Tensor) -> None:
    hidden.grad = weight.grad = None
    logprobs, entropy = path(hidden, weight, labels)
    (logprobs.sum() + entropy.sum()).backward()


def seconds(path: Head, inputs: tuple[Tensor, Tensor, Tensor], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step(path, *inputs)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def peak_bytes(path: Head, inputs: tuple[Tensor, Tensor, Tensor]) -> int:
    inputs[0].grad = inputs[1].grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        step(path, *inputs)
    assert run.profiler is not None
    assert run.profiler.kineto_results is not None
    held = peak = 0
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak - sum(x.numel() * x.itemsize for x in inputs[:2])


def measure(tokens: int, vocab: int, dtype: torch.dtype, repeats: int) -> dict[str, float]:
    hidden = torch.randn(tokens, WIDTH).to(dtype).requires_grad_()
    weight = (torch.randn(vocab, WIDTH) * 2 / WIDTH**0.5).to(dtype).requires_grad_()
    inputs = (hidden, weight, torch.randint(0, vocab, (tokens,)))
    paths = {"ours": fused, "materialised": materialised}
    row: dict[str, float] = {"tokens": tokens, "vocab": vocab}
    for name, path in paths.items():
        row[f"{name}_mib"] = peak_bytes(path, inputs) / 2**20  # and a warm-up
        row[f"{name}_s"] = seconds(path, inputs, repeats)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"hidden size {WIDTH}, {options.dtype}, {options.threads} thread(s), torch {torch.__version__}")
    print(" tokens   vocab |   ours s theirs s  ratio |  ours MiB theirs MiB  ratio")
    rows = []
    for tokens, vocab in SHAPES:
        row = measure(tokens, vocab, getattr(torch, options.dtype), options.repeats)
        rows.append(row)
        print(
            f"{tokens:>7}{vocab:>8} | {row['ours_s']:>8.3f}{row['materialised_s']:>9.3f}"
            f"{row['ours_s'] / row['materialised_s']:>7.2f} | {row['ours_mib']:>9.1f}{row['materialised_mib']:>11.1f}"
            f"{row['ours_mib'] / row['materialised_mib']:>7.3f}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
