"""Time, peak memory and error of `linear_logprob` and its peers on one GPU, against the floor of the matrix products.

    python benchmarks/linear_logprob.py [--verl DIR] [--nemo-rl DIR] [--skyrl DIR] [--json FILE] [--plots DIR]
        [--shape N,H,V] [--quick] [--turns]

A DIR is a checkout or an unpacked wheel; peers that cannot be imported are named and left out. bf16, random data, the
hidden states drawn anew for every call; CUDA events, median of the calls and their spread. "floor" is 8·N·H·V FLOPs
(no-grad: 2·N·H·V) at the rate of an 8192 x 8192 x 8192 product: first the best rate seen in the whole run (a cool
card), then the rate measured right after the calls (the card as warm as they left it). "memory" is the peak beyond
inputs, outputs and the two gradients. Errors against float64 on the same bf16 numbers: relative norm, and the largest.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from peers import Checkouts, Head, Peer, all_peers, materialised, ours
from torch import Tensor

from mcore_unpatch.compat import vocab_pass
from mcore_unpatch.compat.fused_head.triton import launch

SHAPES = [(16384, 4096, 151936), (32768, 2048, 248320), (8192, 7168, 129280)]
TOKENS = [512, 2048, 8192, 32768, 131072]
MASKED = [0.0, 0.25, 0.5, 0.75, 0.9]
KEPT = [0.0, 0.25, 0.5, 0.75, 1.0]
SPREADS = [2, 8, 30]
MORE_SHAPES = [
    (4096, 4096, 151936),
    (2000, 8192, 128256),
    (12000, 3584, 152064),
    (20011, 5120, 151936),
    (4096, 6144, 200064),
    (30000, 1536, 102400),
]
TURNS = [(512, 4096, 151936), (2048, 4096, 151936), (4096, 4096, 151936), (2000, 8192, 128256)]
GIB = 2**30
best_rate = 0.0  # FLOP per ms of the product alone, the best of this run


class Inputs:
    """Operands of one shape, and the gradients its results receive."""

    def __init__(self, tokens: int, width: int, vocab: int, spread: float = 2) -> None:
        self.hidden = torch.randn(tokens, width, device="cuda").bfloat16().requires_grad_()
        self.weight = torch.empty(vocab, width, device="cuda", dtype=torch.bfloat16)
        self.weight.normal_(0, spread / width**0.5).requires_grad_()
        self.labels = torch.randint(0, vocab, (tokens,), device="cuda")
        self.logprob_grad, self.entropy_grad = torch.randn(2, tokens, device="cuda")

    def refresh(self) -> None:
        self.hidden.grad = self.weight.grad = None
        with torch.no_grad():
            self.hidden.normal_()


def train(peer: Peer, inputs: Inputs) -> tuple[Tensor, Tensor | None]:
    logprobs, entropy = peer.head(inputs.hidden, inputs.weight, inputs.labels)
    loss = logprobs.sum() if peer.unit_grad else (logprobs * inputs.logprob_grad).sum()
    if entropy is not None and peer.entropy:
        loss = loss + (entropy * inputs.entropy_grad).sum()
    torch.autograd.backward(loss)
    return logprobs, entropy


def infer(peer: Peer, inputs: Inputs) -> None:
    with torch.no_grad():
        peer.head(inputs.hidden, inputs.weight, inputs.labels)


def milliseconds(call: Callable[[], Any]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def product_rate() -> float:
    """FLOP per millisecond of a large product, now."""
    global best_rate
    a, b = torch.randn(2, 8192, 8192, device="cuda").bfloat16()
    torch.mm(a, b)
    rate = 2 * 8192**3 / statistics.median(milliseconds(lambda: torch.mm(a, b)) for _ in range(5))
    best_rate = max(best_rate, rate)
    return rate


def measure(peer: Peer, inputs: Inputs, call: Callable[[Peer, Inputs], Any], repeats: int) -> dict[str, Any]:
    """Times, the rate of a product right after them, and the peak of memory beyond what must be there."""
    inputs.refresh()
    call(peer, inputs)  # warm-up
    times = []
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        inputs.refresh()
        held = torch.cuda.memory_allocated()
        times.append(milliseconds(lambda: call(peer, inputs)))
    peak = torch.cuda.max_memory_allocated() - held
    gradients = sum(x.grad.nbytes for x in (inputs.hidden, inputs.weight) if x.grad is not None)
    return {
        "ms": statistics.median(times),
        "fastest": min(times),
        "slowest": max(times),
        "rate": product_rate(),
        "gib": (peak - gradients) / GIB,
        "gib_with_gradients": peak / GIB,
    }


def attempt(peer: Peer, inputs: Inputs, call: Callable[[Peer, Inputs], Any], repeats: int) -> dict[str, Any]:
    try:
        return measure(peer, inputs, call, repeats)
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    except Exception as error:  # a peer's failure is a result
        return {"failed": f"{type(error).__name__}: {str(error)[:80]}"}
    finally:
        inputs.hidden.grad = inputs.weight.grad = None
        torch.cuda.empty_cache()


def errors(peer: Peer, spread: float) -> dict[str, list[float]]:
    """Relative norm and largest absolute error against float64, at 1024 x 512 x 8000, logits of that spread."""
    torch.manual_seed(1)
    inputs = Inputs(1024, 512, 8000, spread)
    try:
        logprobs, entropy = train(peer, inputs)
    except Exception:
        return {}
    exact = [x.detach().double().requires_grad_() for x in (inputs.hidden, inputs.weight)]
    true_logprobs, true_entropy = materialised(exact[0], exact[1], inputs.labels)
    loss = true_logprobs.sum() if peer.unit_grad else (true_logprobs * inputs.logprob_grad).sum()
    if peer.entropy:
        loss = loss + (true_entropy * inputs.entropy_grad).sum()
    torch.autograd.backward(loss)
    found: dict[str, Any] = {"dH": (inputs.hidden.grad, exact[0].grad), "dW": (inputs.weight.grad, exact[1].grad)}
    if logprobs.shape == true_logprobs.shape:
        found["logprobs"] = (logprobs, true_logprobs)
    if entropy is not None and peer.entropy:
        found["entropy"] = (entropy, true_entropy)
    return {
        name: [float((a.double() - b).norm() / b.norm()), float((a.double() - b).abs().max())]
        for name, (a, b) in found.items()
    }


def compare(shape: tuple[int, int, int], peers: list[Peer], repeats: int) -> list[dict[str, Any]]:
    """Every peer at one shape."""
    inputs, work = Inputs(*shape), 2 * shape[0] * shape[1] * shape[2]
    rows = []
    for peer in peers:
        row: dict[str, Any] = {"peer": peer.name, "entropy": peer.entropy, "shape": shape}
        few = 1 if peer.slow else repeats
        row["train"] = attempt(peer, inputs, train, few) | {"flops": 4 * work}
        row["infer"] = attempt(peer, inputs, infer, few) | {"flops": work}
        rows.append(row)
        print(".", end="", flush=True)
    return rows


def over_masks(shape: tuple[int, int, int], repeats: int) -> list[dict[str, Any]]:
    """Ours with part of the rows masked, the number of rows known to the caller or not."""
    inputs, rows = Inputs(*shape), []
    for fraction in MASKED:
        mask = torch.zeros(shape[0], device="cuda")
        mask[torch.randperm(shape[0], device="cuda")[round(shape[0] * fraction) :]] = 1
        count = shape[0] - round(shape[0] * fraction)
        for known in (False, True):
            head: Head = ours(mask=mask, count=count if known else None)
            row = attempt(Peer("ours", head, entropy=True), inputs, train, repeats)
            rows.append({"shape": shape, "masked": fraction, "count_known": known, **row})
    return rows


def over_kept(shape: tuple[int, int, int], repeats: int) -> list[dict[str, Any]]:
    """Ours with a growing part of the logits kept from the forward."""
    inputs, rows = Inputs(*shape), []
    for part in KEPT:
        row = attempt(Peer("ours", ours(kept=part), entropy=True), inputs, train, repeats)
        rows.append({"shape": shape, "kept": part, **row})
    return rows


def over_statistics(shape: tuple[int, int, int], repeats: int) -> list[dict[str, Any]]:
    """What each further statistic costs beside log-probs and entropy."""
    inputs, rows = Inputs(*shape), []
    ids = torch.randint(0, shape[2], (shape[0], 64), device="cuda")
    asked: dict[str, dict[str, Any]] = {
        "log-probs and entropy": {},
        "sum of squares": {"sum_pi_squared": True},
        **{f"top {k}": {"topk": k} for k in (1, 8, 64)},
        **{f"{k} ids": {"token_ids": ids[:, :k]} for k in (1, 8, 64)},
    }
    for name, options in asked.items():

        def head(
            hidden: Tensor, weight: Tensor, labels: Tensor, options: dict[str, Any] = options
        ) -> tuple[Tensor, Tensor]:
            out = vocab_pass(hidden, weight, labels, entropy=True, **options)
            more = [out.topk_logits, out.token_logprobs, out.sum_pi_squared]
            return out.logprobs + sum(x.reshape(len(hidden), -1).sum(1) for x in more if x is not None), out.entropy

        peer = Peer(name, head, entropy=True)
        row = attempt(peer, inputs, train, repeats) | {"infer": attempt(peer, inputs, infer, repeats)}
        rows.append({"shape": shape, "statistic": name, **row})
    return rows


def without_tma(shape: tuple[int, int, int], repeats: int) -> dict[str, Any]:
    """Ours as on a card that is no Hopper."""
    inputs, peer = Inputs(*shape), Peer("ours", ours(), entropy=True)
    with mock.patch.object(launch, "has_tma", return_value=False):
        row = attempt(peer, inputs, train, repeats) | {"infer": attempt(peer, inputs, infer, repeats)}
    return {"shape": shape, **row}


def over_tokens(peers: list[Peer], repeats: int) -> Iterator[dict[str, Any]]:
    """Time and memory as tokens grow, at H = 4096 and V = 151936; beyond 32,768 ours alone."""
    for tokens in TOKENS:
        inputs = Inputs(tokens, 4096, 151936)
        many = tokens > 32768
        for peer in peers:
            if not many or peer.name == "mcore-unpatch, triton":
                few = 1 if many else max(repeats, 20) if tokens <= 2048 else repeats  # short calls are noisy
                row = {"peer": peer.name, "tokens": tokens, **attempt(peer, inputs, train, few)}
                yield row | {"infer": attempt(peer, inputs, infer, few)}


def by_turns(peers: list[Peer], repeats: int) -> list[dict[str, Any]]:
    """Short calls of all peers by turns: one peer's after the other's would meet another clock."""
    rows = []
    for shape in TURNS:
        inputs = Inputs(*shape)
        for call in (train, infer):
            times: dict[str, list[float]] = {peer.name: [] for peer in peers}
            for turn in range(3 + repeats):  # three to warm up
                for peer in peers:
                    inputs.refresh()
                    torch.cuda.synchronize()
                    taken = milliseconds(lambda call=call, peer=peer, inputs=inputs: call(peer, inputs))
                    times[peer.name] += [taken] if turn >= 3 else []
            product_rate()
            for name, taken in times.items():
                row = {"shape": shape, "kind": call.__name__, "peer": name, "ms": statistics.median(taken)}
                rows.append(row | {"fastest": min(taken), "slowest": max(taken)})
                print(f"{shape} {call.__name__} {name:34} {row['ms']:.2f} ({min(taken):.2f} - {max(taken):.2f}) ms")
        inputs.hidden.grad = inputs.weight.grad = None
    return rows


def show(rows: list[dict[str, Any]], exactness: dict[str, dict[str, list[float]]]) -> None:
    for shape in dict.fromkeys(tuple(row["shape"]) for row in rows):
        print(
            f"\nN={shape[0]} H={shape[1]} V={shape[2]}, floor {8 * shape[0] * shape[1] * shape[2] / best_rate:.1f} ms"
        )
        print(f"{'':38}| forward + backward: ms (spread), x floor cool, warm, memory | no-grad: ms, x cool, x warm")
        for row in rows:
            if tuple(row["shape"]) == shape:
                print(f"{row['peer']:32}{'lp+ent' if row['entropy'] else 'lp':6}|", _cells(row["train"]), "|", end="")
                print(_cells(row["infer"]))
    print("\nerrors against float64:")
    for name, found in exactness.items():
        print(f"{name:48}", "  ".join(f"{key} {norm:.1e} ({most:.0e})" for key, (norm, most) in found.items()))


def _cells(result: dict[str, Any]) -> str:
    if "failed" in result:
        return f"{result['failed'][:40]:>42}"
    floor, now = result["flops"] / best_rate, result["flops"] / result["rate"]
    return (
        f"{result['ms']:>8.1f} ({result['fastest']:.1f}-{result['slowest']:.1f})"
        f" {result['ms'] / floor:>6.2f} {result['ms'] / now:>5.2f} {result['gib']:>6.2f} GiB"
    )


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("verl", "nemo-rl", "skyrl", "json", "plots"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--shape", type=_shape, action="append", help="N,H,V instead of the three usual ones")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--turns", action="store_true", help="few tokens alone, the fast peers by turns")
    parser.add_argument("--quick", action="store_true", help="ours alone, without the growing tokens")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64  # each shape is compiled for itself; beyond the limit eager code runs
    product_rate()
    found = list(all_peers(Checkouts(options.verl, options.nemo_rl, options.skyrl)))
    peers = [peer for peer in found if isinstance(peer, Peer)]
    for missing in found:
        if isinstance(missing, str):
            print(f"left out: {missing}")
    if options.quick:
        peers = peers[:1]
    report: dict[str, Any] = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "shapes": [],
        "masks": [],
        "tokens": [],
        "kept": [],
        "statistics": [],
        "pointers": [],
    }

    def save() -> None:
        report["tflops"] = best_rate / 1e9
        if options.json:
            options.json.write_text(json.dumps(report, indent=1))

    fast = [peer for peer in peers if peer.entropy and peer.name.startswith(("mcore", "Liger", "materialised, comp"))]
    fast = [peer for peer in fast if "torch" not in peer.name]
    if options.turns:
        report["by_turns"] = by_turns([peer for peer in fast if "half" not in peer.name], options.repeats)
        save()
        return
    report["errors"] = {
        f"{peer.name} {'lp+ent' if peer.entropy else 'lp'}, spread {spread}": errors(peer, spread)
        for spread in SPREADS
        for peer in peers
    }
    for shape in options.shape or SHAPES:
        report["shapes"] += compare(shape, peers, options.repeats)
        report["masks"] += over_masks(shape, options.repeats)
        report["kept"] += over_kept(shape, options.repeats)
        report["pointers"].append(without_tma(shape, options.repeats))
        save()
    report["statistics"] += over_statistics((options.shape or SHAPES)[0], options.repeats)
    for shape in () if options.quick or options.shape else MORE_SHAPES:
        report["shapes"] += compare(shape, fast, options.repeats)
        save()
    show(report["shapes"], report["errors"])
    for row in report["masks"]:
        print(f"{row['shape']} masked {row['masked']:.0%} count known {row['count_known']}: {row.get('ms', -1):.1f} ms")
    for row in report["kept"]:
        print(f"{row['shape']} kept {row['kept']:.0%}: {row.get('ms', -1):.1f} ms, {row.get('gib', -1):.2f} GiB")
    for row in report["statistics"] + report["pointers"]:
        name = row.get("statistic", "without the TMA")
        print(f"{row['shape']} {name}: {row.get('ms', -1):.1f} ms; no-grad {row['infer'].get('ms', -1):.1f} ms")
    names = ("mcore-unpatch, triton", "veRL, triton", "materialised, compiled", "Liger")
    chosen = [peer for peer in peers if peer.name.startswith(names) and "filter" not in peer.name]
    chosen = [peer for peer in chosen if peer.entropy and "half" not in peer.name]
    for row in () if options.quick else over_tokens(chosen, options.repeats):
        report["tokens"].append(row)
        results = (
            result.get("failed") or f"{result['ms']:.2f} ms, {result['gib']:.4f} GiB" for result in (row, row["infer"])
        )
        print(f"{row['tokens']:>7} tokens {row['peer']:30} {'; no-grad '.join(results)}", flush=True)
        save()
    if options.plots:
        from plots import draw_all

        draw_all(report, options.plots)


if __name__ == "__main__":
    main()
