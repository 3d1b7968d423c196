"""Time, memory and error of `linear_kl` and its peers on one GPU, against the floor of the matrix products.

    python benchmarks/linear_kl.py [--json FILE] [--repeats N] [--distances] [--plot FILE]

Student and teacher in bf16, gradients of the student. "floor": the logits of both heads twice (forward and recomputed),
and two gradients of the student's head, at the rate of an 8192 x 8192 x 8192 product. "memory" is the peak beyond
inputs and gradients. Peers: whole logits, eager and compiled; Liger's fused linear JSD (its `jsd_beta` 0 and 1 are the
two KL divergences) and its fused linear KL, which takes the teacher's probabilities whole. Liger gives one mean: the
gradients of all are those of the mean. Errors against float64 at 1024 x 256, 512 x 8000: relative norm.

`--distances`: errors alone, of a student whose logits lie so far from the teacher's; on a CPU as well. `--plot` draws
those of the weight's gradient.
"""

import argparse
import importlib
import json
import math
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import linear_logprob as rates
import torch
from linear_logprob import GIB, milliseconds, product_rate
from plots import plot
from torch import Tensor

from mcore_unpatch.compat import linear_kl

SHAPES = [(8192, 2048, 4096, 151936), (8192, 4096, 4096, 151936)]
KINDS = ("forward", "reverse", "jsd")
Mean = Callable[[Tensor, Tensor, Tensor, Tensor, str], Tensor]


DISTANCES = [3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def heads(tokens: int, student: int, teacher: int, vocab: int) -> list[Tensor]:
    tensors = []
    for width in (student, teacher):
        tensors.append(torch.randn(tokens, width, device=DEVICE).bfloat16())
        tensors.append(torch.empty(vocab, width, device=DEVICE, dtype=torch.bfloat16).normal_(0, 2 / width**0.5))
    for tensor in tensors[:2]:
        tensor.requires_grad_()
    return tensors


def close_heads(distance: float) -> list[Tensor]:
    """A teacher, and a student with its hidden states whose logits lie about `distance` from the teacher's."""
    _, _, hidden, teacher = heads(1024, 512, 512, 8000)
    moved = teacher.float() + torch.randn_like(teacher, dtype=torch.float32) * distance / 512**0.5
    tensors = [hidden.clone(), moved.bfloat16(), hidden, teacher]
    for tensor in tensors[:2]:
        tensor.requires_grad_()
    return tensors


def ours(part: float = 0.0) -> Mean:
    """With that part of the logits kept."""

    def mean(x: Tensor, w: Tensor, y: Tensor, v: Tensor, kind: Any) -> Tensor:
        return linear_kl(x, w, y, v, kind=kind, keep_bytes=int(part * len(x) * len(w) * 4.1)).mean()

    return mean


def materialised(x: Tensor, w: Tensor, y: Tensor, v: Tensor, kind: str) -> Tensor:
    a, b = ((h @ u.t()) for h, u in ((x, w), (y, v)))
    a, b = ((z if z.dtype == torch.float64 else z.float()).log_softmax(-1) for z in (a, b))
    if kind == "forward":
        return (b.exp() * (b - a)).sum(-1).mean()
    if kind == "reverse":
        return (a.exp() * (a - b)).sum(-1).mean()
    mixture = torch.logaddexp(a, b) - math.log(2)
    return 0.5 * ((b.exp() * (b - mixture)).sum(-1) + (a.exp() * (a - mixture)).sum(-1)).mean()


def peers() -> Iterator[tuple[str, Mean, tuple[str, ...]] | str]:
    yield "mcore-unpatch", ours(), KINDS
    yield "materialised, eager", materialised, KINDS
    if DEVICE == "cpu":  # nothing is kept there, and Liger needs a GPU
        return
    yield "mcore-unpatch, all kept", ours(1), KINDS
    yield "mcore-unpatch, half kept", ours(0.5), KINDS
    yield "materialised, compiled", torch.compile(materialised, dynamic=False), KINDS
    try:
        jsd = importlib.import_module("liger_kernel.ops.fused_linear_jsd").LigerFusedLinearJSDFunction
        kl = importlib.import_module("liger_kernel.ops.fused_linear_kl_div").LigerFusedLinearKLDivFunction
    except (ImportError, AttributeError, OSError) as error:
        yield f"Liger: {type(error).__name__}: {error}"
        return
    betas = {"forward": 0.0, "reverse": 1.0, "jsd": 0.5}
    yield "Liger, fused linear JSD", lambda x, w, y, v, kind: jsd.apply(x, w, y, v, None, betas[kind]), KINDS
    yield (
        "Liger, fused linear KL",
        lambda x, w, y, v, kind: kl.apply(x, w, (y @ v.t()).float().softmax(-1)),
        ("forward",),
    )


def measure(mean: Mean, tensors: list[Tensor], kind: str, repeats: int) -> dict[str, Any]:
    def step() -> None:
        tensors[0].grad = tensors[1].grad = None
        torch.autograd.backward(mean(*tensors, kind))

    try:
        step()
        tensors[0].grad = tensors[1].grad = None
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated() + tensors[0].nbytes + tensors[1].nbytes
        times = [milliseconds(step) for _ in range(repeats)]
        memory = (torch.cuda.max_memory_allocated() - held) / GIB
        return {"ms": statistics.median(times), "fastest": min(times), "slowest": max(times), "gib": memory}
    except Exception as error:  # a peer's failure is a result
        return {"failed": f"{type(error).__name__}: {str(error)[:80]}"}
    finally:
        tensors[0].grad = tensors[1].grad = None
        torch.cuda.empty_cache()
        product_rate()


def errors(mean: Mean, kind: str) -> dict[str, float]:
    torch.manual_seed(1)
    return errors_at(heads(1024, 256, 512, 8000), mean, kind)


def errors_at(tensors: list[Tensor], mean: Mean, kind: str) -> dict[str, float]:
    exact = [x.detach().double() for x in tensors]
    found = []
    for function, given in ((mean, tensors), (materialised, exact)):
        given[0].requires_grad_(), given[1].requires_grad_()
        given[0].grad = given[1].grad = None
        value = function(*given, kind)
        torch.autograd.backward(value)
        found.append([value.detach().double(), given[0].grad, given[1].grad])
    pairs = zip(("value", "dH", "dW"), *found, strict=True)
    return {name: float((a.double() - b).norm() / b.norm()) for name, a, b in pairs}  # type: ignore[union-attr]


def over_distances(chosen: list[Any]) -> list[dict[str, Any]]:
    """Errors of value and gradients as the student comes close to its teacher."""
    rows = []
    for name, mean, kinds in chosen:
        for kind in kinds:
            for distance in DISTANCES:
                torch.manual_seed(1)
                try:
                    found = errors_at(close_heads(distance), mean, kind)
                except Exception as error:  # a peer's failure is a result
                    print(f"{name} {kind}: {type(error).__name__}: {str(error)[:80]}")
                    break
                rows.append({"device": DEVICE, "peer": name, "kind": kind, "distance": distance, **found})
                each = "  ".join(f"{key} {value:.1e}" for key, value in found.items())
                print(f"{name:26} {kind:8} {distance:6} {each}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--distances", action="store_true")
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    torch._dynamo.config.recompile_limit = 64  # each kind and shape is compiled for itself
    chosen = [peer for peer in peers() if not isinstance(peer, str) or print(f"left out: {peer}")]
    if options.distances:
        found = over_distances(chosen)
        lines: dict[str, list[tuple[float, float]]] = {}
        for row in found:
            if row["kind"] == "forward":
                lines.setdefault(row["peer"], []).append((row["distance"], row["dW"]))
        if options.plot:
            title = "Error of the weight's gradient, forward KL, bfloat16"
            options.plot.write_text(plot(title, "distance of the student's logits from the teacher's", lines, True))
        if options.json:
            options.json.write_text(json.dumps({"distances": found}, indent=1))
        return
    product_rate()
    rows = []
    for shape in SHAPES:
        tokens, student, teacher, vocab = shape
        flops = 4 * tokens * vocab * (2 * student + teacher)
        tensors = heads(*shape)
        for name, mean, kinds in chosen:
            for kind in kinds:
                row = {"peer": name, "kind": kind, "shape": shape, "flops": flops}
                rows.append(row | measure(mean, tensors, kind, options.repeats) | {"errors": {}})
                if shape == SHAPES[0] and "failed" not in rows[-1]:
                    rows[-1]["errors"] = errors(mean, kind)
    for row in rows:
        text = row.get("failed") or (
            f"{row['ms']:7.1f} ms ({row['fastest']:.1f}-{row['slowest']:.1f})"
            f" {row['ms'] * rates.best_rate / row['flops']:5.2f} of the floor, {row['gib']:.2f} GiB"
        )
        exactness = "  ".join(f"{name} {value:.1e}" for name, value in row["errors"].items())
        print(f"{row['shape']} {row['kind']:8} {row['peer']:26} {text}  {exactness}")
    if options.json:
        options.json.write_text(json.dumps({"tflops": rates.best_rate / 1e9, "kl": rows}, indent=1))


if __name__ == "__main__":
    main()
