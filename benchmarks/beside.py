"""`linear_logprob` beside Liger, cut-cross-entropy, torch's own `linear_cross_entropy` and veRL's kernel: what they do.

    python benchmarks/beside.py --json docs/beside.json [--verl DIR]     # adds what this machine can measure
    python benchmarks/beside.py --json docs/beside.json --page docs/beside.md     # writes the tables

On a GPU: features, and time, memory and error at four shapes, bf16. On a CPU: the features there, and time and memory
in float32. A feature is there if a call that asks for it gives the numbers and the gradients of float64 (within a
twentieth, which tells a feature from none); "no" where the function has no argument for it. torch's function is newer
than the GPU's torch, and is measured on a CPU alone.
"""

import argparse
import importlib
import importlib.metadata
import inspect
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checkouts import verl_kernel
from torch import Tensor

from mcore_unpatch.compat import LogprobOptions, linear_logprob, vocab_pass
from mcore_unpatch.compat.verl.linear_cross_entropy import linear_cross_entropy

GPU_SHAPES = [(16384, 4096, 151936), (32768, 2048, 248320), (8192, 7168, 129280), (4096, 4096, 151936)]
CPU_SHAPES = [(256, 512, 32768), (1024, 256, 32768)]
Call = Callable[..., dict[str, Tensor]]


def named(logprobs: Tensor, entropy: Tensor | None = None, **others: Tensor) -> dict[str, Tensor]:
    found = {"logprobs": logprobs, **others}
    return found if entropy is None else found | {"entropy": entropy}


def ours(
    h: Tensor, w: Tensor, t: Tensor, *, topk: int = 0, kept: float = 0, entropy: bool = False, **asked: Any
) -> Any:
    options = {name: asked.pop(name) for name in LogprobOptions.__dataclass_fields__ if name in asked}
    if topk:
        out: Any = vocab_pass(h, w, t, topk=topk)
        return named(out.logprobs, topk=out.topk_logits - out.logsumexp[:, None])
    asked["keep_bytes"] = round(kept * len(h) * len(w) * 2.05)
    out = linear_logprob(h, w, t, entropy=entropy, options=LogprobOptions(**options), **asked)
    return named(out.logprobs, out.entropy)


def as_verls_kernel(h: Tensor, w: Tensor, t: Tensor, *, kept: float = 0, entropy: bool = False) -> Any:
    found = linear_cross_entropy(h, w, t, keep_bytes=round(kept * len(h) * len(w) * 2.05))
    return named(found[0], found[1] if entropy else None)


def verl(folder: Path | None) -> Call:
    kernel = verl_kernel(folder)

    def call(
        h: Tensor, w: Tensor, t: Tensor, *, temperature: float = 1.0, tp_group: Any = None, entropy: bool = False
    ) -> Any:
        found = kernel(h, w, t, temperature, "none", tp_group)
        return named(found[0], found[1] if entropy else None)

    return call


def liger() -> Call:
    """Its function for one number per token, and, for what that has not, the one that reduces."""
    scaled = importlib.import_module("liger_kernel.ops.fused_linear_scaled_cross_entropy")
    summed = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")

    def call(
        h: Tensor,
        w: Tensor,
        t: Tensor,
        *,
        temperature: float = 1.0,
        ignore_index: int = -100,
        entropy: bool = False,
        tp_group: Any = None,
        softcap: float | None = None,
        label_smoothing: float = 0.0,
        bias: Tensor | None = None,
    ) -> Any:
        if softcap or label_smoothing or bias is not None:
            function = summed.LigerFusedLinearCrossEntropyFunction
            out = function.apply(h, w, t, bias, None, ignore_index, 0.0, label_smoothing, "none", softcap)
            return named(-(out[0] if isinstance(out, tuple) else out))
        if tp_group is not None:
            function = scaled.LigerFusedLinearScaledCrossEntropyTPFunction
            out = function.apply(h, w, t, tp_group, temperature, ignore_index, 1, entropy)
        else:
            function = scaled.LigerFusedLinearScaledCrossEntropyFunction
            out = function.apply(h, w, t, temperature, ignore_index, 1, entropy)
        return named(-out[0], out[1]) if entropy else named(-out)

    return call


def cut_cross_entropy(**fixed: Any) -> Call:
    function = importlib.import_module("cut_cross_entropy").linear_cross_entropy

    def call(h: Tensor, w: Tensor, t: Tensor, *, ignore_index: int = -100, softcap: float | None = None) -> Any:
        where = {} if h.is_cuda else {"impl": "torch_compile"}
        return named(-function(h, w, t, ignore_index, softcap, "none", **fixed, **where))

    return call


def of_torch(chunked: bool) -> Call:
    function = torch.nn.functional.linear_cross_entropy  # type: ignore[attr-defined]
    options: Any = torch.nn.LinearCrossEntropyOptions() if chunked else None  # type: ignore[attr-defined]

    def call(
        h: Tensor,
        w: Tensor,
        t: Tensor,
        *,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
        bias: Tensor | None = None,
    ) -> Any:
        more = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "linear_bias": bias}
        return named(-function(h, w, t, reduction="none", options=options, **more))

    return call


def whole(h: Tensor, w: Tensor, t: Tensor, **asked: Any) -> dict[str, Tensor]:
    """The truth: whole logits, in the dtype of the operands."""
    bias, softcap, temperature = asked.get("bias"), asked.get("softcap"), asked.get("temperature", 1.0)
    logits = h @ w.t() + (0 if bias is None else bias.to(h.dtype))
    logits = logits if softcap is None else softcap * (logits / softcap).tanh()
    logits = logits / (temperature[:, None] if isinstance(temperature, Tensor) else temperature)
    log_p = logits.log_softmax(-1)
    known = t != asked.get("ignore_index", -100)
    found = {"logprobs": log_p.gather(1, t.where(known, 0)[:, None])[:, 0]}
    if smoothing := asked.get("label_smoothing"):
        found["logprobs"] = (1 - smoothing) * found["logprobs"] + smoothing * log_p.mean(-1)
    if asked.get("entropy"):
        found["entropy"] = -(log_p.exp() * log_p).sum(-1)
    if asked.get("topk"):
        found["topk"] = log_p.topk(asked["topk"]).values
    kept = known if asked.get("mask") is None else known & (asked["mask"] != 0)
    return {name: value.where(kept if value.dim() == 1 else kept[:, None], 0) for name, value in found.items()}


def peers(folder: Path | None, gpu: bool) -> Iterator[tuple[str, Call]]:
    """Every function that can be had here; the names of the table's columns."""
    builders: dict[str, Callable[[], Call]] = {"ours": lambda: ours}
    if gpu:
        builders["veRL's kernel"] = lambda: verl(folder)
    builders[f"Liger {_version('liger-kernel')}"] = liger
    builders[f"cut-cross-entropy {_version('cut-cross-entropy')}"] = cut_cross_entropy
    if gpu:
        builders["cut-cross-entropy, no filter"] = lambda: cut_cross_entropy(filter_eps=None)
    release = torch.__version__.partition("+")[0]
    builders[f"torch {release}"] = lambda: of_torch(chunked=False)
    builders[f"torch {release}, chunked"] = lambda: of_torch(chunked=True)
    for name, build in builders.items():
        try:
            yield name, build()
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            print(f"{name}: {type(error).__name__}: {error}")


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def gradients(call: Call, h: Tensor, w: Tensor, t: Tensor, **asked: Any) -> dict[str, Tensor]:
    """Results, and the gradients of a loss that weighs every one of them differently."""
    x, y = (value.detach().clone().requires_grad_() for value in (h, w))
    found = call(x, y, t, **asked)
    draw = torch.Generator().manual_seed(7)
    factors = {name: torch.randn(value.shape, generator=draw).to(value) for name, value in found.items()}
    torch.autograd.backward(list(found.values()), list(factors.values()))
    own = {name: value.detach() for name, value in found.items()}
    return own | {"dH": x.grad, "dW": y.grad}  # type: ignore[dict-item]


FEATURES: dict[str, dict[str, Any]] = {
    "a log-prob for each token, with any gradient": {},
    "the entropy from the same pass, with its gradient": {"entropy": True},
    "a temperature": {"temperature": 0.7},
    "a temperature for each token": {"temperature": "each"},
    "labels that are ignored": {"ignore_index": -100},
    "a mask of rows": {"mask": "half"},
    "rows without a label cost nothing": {},
    "top-k from the same pass, with its gradient": {"topk": 4},
    "a head that lies on several ranks": {"tp_group": "world"},
    "`torch.compile(fullgraph=True)`": {},
    "soft caps of the logits": {"softcap": 5.0},
    "label smoothing": {"label_smoothing": 0.1},
    "a bias": {"bias": "random"},
}
TWENTIETH = 0.05


def features(call: Call, device: str, dtype: torch.dtype) -> dict[str, str]:
    """For each feature "yes", "no", or what went wrong."""
    found = {}
    parameters = inspect.signature(call).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for feature, asked in FEATURES.items():
        unknown = (
            asked.keys() & {"softcap", "label_smoothing", "bias"} if takes_all else asked.keys() - parameters.keys()
        )
        if unknown:
            found[feature] = "no"
            continue
        torch.manual_seed(0)
        torch._dynamo.reset()
        h, w = torch.randn(512, 256, device=device).to(dtype), (torch.randn(4096, 256, device=device) / 4).to(dtype)
        t = torch.randint(0, len(w), (len(h),), device=device)
        own = dict(asked)
        if "ignore_index" in asked:
            t[::3] = -100
        if own.get("temperature") == "each":
            own["temperature"] = torch.rand(len(h), device=device) + 0.5
        if "mask" in own:
            own["mask"] = torch.arange(len(h), device=device) % 2
        if "bias" in own:
            own["bias"] = torch.randn(len(w), device=device).to(dtype)
        if "tp_group" in own:
            own["tp_group"] = _world(device)
        try:
            if feature.startswith("rows without"):
                found[feature] = _rows_are_left_out(call, device, dtype)
                continue
            backend = "inductor" if device == "cuda" else "aot_eager"  # on a CPU the rest of a graph is not the matter
            tried = torch.compile(call, fullgraph=True, backend=backend) if "compile" in feature else call
            results = gradients(tried, h, w, t, **own)
        except Exception as error:  # a peer's failure is a result
            found[feature] = "no" if isinstance(error, TypeError) else f"no: {type(error).__name__}"
            continue
        exact = {name: value.double() if isinstance(value, Tensor) else value for name, value in own.items()}
        truth = gradients(whole, h.double(), w.double(), t, **exact)
        worst = max(float((results[n].double() - v).norm() / v.norm()) for n, v in truth.items() if n in results)
        found[feature] = "yes" if worst < TWENTIETH and truth.keys() <= results.keys() else f"no: error {worst:.2g}"
    return found


def _rows_are_left_out(call: Call, device: str, dtype: torch.dtype) -> str:
    """Nine tenths of the labels are ignored: does it take less than a third of the time?"""
    n, width, words = (16384, 4096, 65536) if device == "cuda" else (128, 256, 32768)
    h = torch.randn(n, width, device=device).to(dtype).requires_grad_()
    w = (torch.randn(words, width, device=device) / width**0.5).to(dtype).requires_grad_()
    t = torch.randint(0, words, (n,), device=device)
    some = t.where(torch.arange(n, device=device) % 10 == 0, -100)

    def step(labels: Tensor) -> None:
        torch.autograd.grad(call(h, w, labels)["logprobs"].sum(), (h, w))

    each = [statistics.median(_milliseconds(lambda t=t: step(t)) for _ in range(3)) for t in (t, some)]
    return "yes" if each[1] < each[0] / 3 else f"no: {each[1] / each[0]:.0%} of the time"


def _milliseconds(call: Callable[[], Any]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - start)


def _cpu_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Of one thread: what else the machine does costs nothing."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def _world(device: str) -> Any:
    if not dist.is_initialized():
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    return dist.group.WORLD


def on_gpu(folder: Path | None, repeats: int) -> dict[str, Any]:
    """Features, errors and the figures of every shape."""
    import linear_logprob as bench
    from peers import Head, Peer

    def head(call: Call, **asked: Any) -> Head:
        def run(h: Tensor, w: Tensor, t: Tensor) -> tuple[Tensor, Tensor | None]:
            found = call(h, w, t, **asked)
            return found["logprobs"], found.get("entropy")

        return run

    known = dict(peers(folder, gpu=True))
    table = {}
    for name, call in known.items():
        print(name)
        table[name] = features(call, "cuda", torch.bfloat16)
    rows = [
        Peer("ours", head(ours, entropy=True), entropy=True),
        Peer("ours, all kept", head(ours, entropy=True, kept=1), entropy=True),
        Peer("ours, inside torch.compile", torch.compile(head(ours, entropy=True), fullgraph=True), entropy=True),
        Peer("ours as veRL's kernel", head(as_verls_kernel, entropy=True), entropy=True),
        Peer("ours as veRL's kernel, all kept", head(as_verls_kernel, entropy=True, kept=1), entropy=True),
    ]
    for name, call in known.items():
        if name != "ours":
            entropy = table[name]["the entropy from the same pass, with its gradient"] == "yes"
            rows.append(Peer(name, head(call, **({"entropy": True} if entropy else {})), entropy=entropy))
    torch._dynamo.reset()
    figures = [row for shape in GPU_SHAPES for row in bench.compare(shape, rows, repeats)]
    errors = {peer.name: bench.errors(peer, 8) for peer in rows}
    versions = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    return {**versions, "features": table, "figures": figures, "errors": errors}


def on_cpu(repeats: int) -> dict[str, Any]:
    """The features on a CPU, and seconds and MiB of every shape."""
    import linear_logprob_cpu as bench

    torch.set_num_threads(1)
    known = dict(peers(None, gpu=False))
    table = {}
    for name, call in known.items():
        table[name] = features(call, "cpu", torch.float32)
        print(name, table[name], flush=True)
    figures = []
    for shape in CPU_SHAPES:
        torch.manual_seed(0)
        h = torch.randn(shape[0], shape[1]).requires_grad_()
        w = (torch.randn(shape[2], shape[1]) * 2 / shape[1] ** 0.5).requires_grad_()
        t = torch.randint(0, shape[2], (shape[0],))
        for name, call in known.items():
            if table[name]["a log-prob for each token, with any gradient"] != "yes":
                continue

            def path(h: Tensor, w: Tensor, t: Tensor, call: Call = call) -> tuple[Tensor, Tensor]:
                return call(h, w, t)["logprobs"], torch.zeros(())

            bench.peak_bytes(path, (h, w, t))  # a warm-up: some compile
            mib = bench.peak_bytes(path, (h, w, t)) / 2**20
            seconds = _cpu_seconds(lambda path=path, inputs=(h, w, t): bench.step(path, *inputs), repeats)
            figures.append({"peer": name, "shape": shape, "seconds": seconds, "mib": mib})
            print(figures[-1], flush=True)
    return {"torch": torch.__version__, "features": table, "figures": figures}


# What was measured with the CuTe DSL, by linear_logprob.py on the same kind of card.
EARLIER = Path(__file__).parents[1] / "docs" / "gpu.json"


def tables(data: dict[str, Any]) -> str:
    """The tables of the page. A feature is there if it is on a GPU or on a CPU."""
    gpu, cpu = data["gpu"], data["cpu"]
    names = [name for name in {**gpu["features"], **cpu["features"]} if "no filter" not in name]
    first = next(iter(FEATURES))
    lines = ["| | " + " | ".join(names) + " |", "|---|" + "---|" * len(names)]
    for feature in [*FEATURES, "on a CPU"]:
        where = (cpu,) if feature == "on a CPU" else (cpu, gpu)
        asked = first if feature == "on a CPU" else feature
        has = [any(of["features"].get(name, {}).get(asked) == "yes" for of in where) for name in names]
        lines.append(f"| {feature} | " + " | ".join("yes" if one else "no" for one in has) + " |")

    shapes = list(dict.fromkeys(tuple(row["shape"]) for row in gpu["figures"]))
    earlier = json.loads(EARLIER.read_text())["run_of_15_november"]["shapes"]
    old = [{**row, "peer": f"{row['peer']} (15 November)"} for row in earlier if row["peer"].startswith("Liger")]
    by = {(row["peer"], tuple(row["shape"])): row for row in [*gpu["figures"], *old]}
    lines += [
        "",
        f"bf16, one {gpu['card']}, torch {gpu['torch']}; tokens x hidden x vocabulary. Each cell: milliseconds of",
        "forward and backward, GiB beyond inputs, outputs and gradients; milliseconds without gradients.",
        "",
        "| | " + " | ".join(map(_shown, shapes)) + " | largest error of a log-prob |",
        "|---|" + "---|" * (len(shapes) + 1),
    ]
    for name in dict.fromkeys(name for name, _ in by):
        rows = [by.get((name, shape)) for shape in shapes]
        if rows[0] is None or "failed" in rows[0]["train"]:
            continue
        each = [f"{r['train']['ms']:.1f}, {r['train']['gib']:.1f}; {r['infer']['ms']:.1f}" if r else "" for r in rows]
        error = gpu["errors"].get(name, {}).get("logprobs")
        without = "" if rows[0]["entropy"] else ", no entropy"
        lines.append(f"| {name}{without} | " + " | ".join(each) + f" | {f'{error[1]:.0e}' if error else ''} |")

    shapes = list(dict.fromkeys(tuple(row["shape"]) for row in cpu["figures"]))
    lines += [
        "",
        f"float32, one thread of a CPU, torch {cpu['torch']}, log-probs alone. Each cell: seconds of forward and",
        "backward, MiB beyond inputs and gradients.",
        "",
        "| | " + " | ".join(map(_shown, shapes)) + " |",
        "|---|" + "---|" * len(shapes),
    ]
    for name in dict.fromkeys(row["peer"] for row in cpu["figures"]):
        each = [f"{r['seconds']:.2f}, {r['mib']:.0f}" for r in cpu["figures"] if r["peer"] == name]
        lines.append(f"| {name} | " + " | ".join(each) + " |")
    return "\n".join(lines)


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--verl", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    data = json.loads(options.json.read_text()) if options.json.exists() else {}
    if options.page:
        head, mark, rest = options.page.read_text().partition("<!-- tables -->\n")
        tail = rest.partition("<!-- end -->")[2]
        options.page.write_text(f"{head}{mark}{tables(data)}\n<!-- end -->{tail}")
        return
    if torch.cuda.is_available():
        data["gpu"] = on_gpu(options.verl, options.repeats)
    else:
        data["cpu"] = on_cpu(options.repeats)
    options.json.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
