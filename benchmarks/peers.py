"""Every way to log-probs that the benchmark compares, each as `(hidden, weight, labels) -> (logprobs, entropy)`."""

import importlib
import importlib.metadata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checkouts import import_from, verl_kernel
from torch import Tensor

from mcore_unpatch.compat import LogprobOptions, linear_logprob

Head = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor | None]]


@dataclass(frozen=True)
class Peer:
    """A competitor; `unit_grad` if its backward serves a sum of losses and no other gradient."""

    name: str
    head: Head
    entropy: bool
    unit_grad: bool = False
    slow: bool = False


@dataclass(frozen=True)
class Checkouts:
    """Where projects that are not installed lie."""

    verl: Path | None = None
    nemo_rl: Path | None = None
    skyrl: Path | None = None


def ours(
    backend: Any = "auto",
    entropy: bool = True,
    mask: Tensor | None = None,
    count: int | None = None,
    kept: float = 0,
    **options: Any,
) -> Head:
    """The operator of this project; `kept` is the part of the logits that the forward keeps."""

    def head(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor | None]:
        keep_bytes = round(kept * len(hidden) * len(weight) * 2.05)  # with the running maxima
        return linear_logprob(
            hidden,
            weight,
            labels,
            entropy=entropy,
            mask=mask,
            keep_bytes=keep_bytes,
            options=LogprobOptions(backend=backend, max_rows=count, **options),
        )

    return head


def materialised(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The default path, with the entropy."""
    logits = torch.nn.functional.linear(hidden, weight)
    log_p = (logits if logits.dtype == torch.float64 else logits.float()).log_softmax(-1)
    return log_p.gather(-1, labels[:, None]).squeeze(1), -(log_p.exp() * log_p).sum(-1)


def materialised_logprobs(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, None]:
    """The default path without the entropy."""
    logits = torch.nn.functional.linear(hidden, weight)
    return -torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none"), None


def all_peers(checkouts: Checkouts) -> Iterator[Peer | str]:
    """Each peer, or why one cannot be had."""
    yield Peer("mcore-unpatch, triton", ours(), entropy=True)
    yield Peer("mcore-unpatch, triton", ours(entropy=False), entropy=False)
    yield Peer("mcore-unpatch, triton, all kept", ours(kept=1), entropy=True)
    yield Peer("mcore-unpatch, triton, half kept", ours(kept=0.5), entropy=True)
    yield Peer("mcore-unpatch, torch", ours("torch"), entropy=True)
    yield Peer("materialised, eager", materialised, entropy=True)
    yield Peer("materialised, eager", materialised_logprobs, entropy=False)
    yield Peer("materialised, compiled", torch.compile(materialised, dynamic=False), entropy=True)
    for build in (_liger_cutedsl, _verl, _cut_cross_entropy, _liger, _skyrl_triton, _skyrl, _nemo_rl):
        try:
            yield from build(checkouts)
        except (ImportError, AttributeError, OSError) as error:
            yield f"{build.__name__.removeprefix('_')}: {type(error).__name__}: {error}"


def _verl(checkouts: Checkouts) -> list[Peer]:
    kernel = verl_kernel(checkouts.verl)
    return [Peer("veRL, triton", lambda h, w, t: kernel(h, w, t, 1.0, "none", None), entropy=True)]


def _cut_cross_entropy(_: Checkouts) -> list[Peer]:
    from cut_cross_entropy import linear_cross_entropy  # type: ignore[import-not-found]

    version = importlib.metadata.version("cut-cross-entropy")

    def head(**options: Any) -> Head:
        return lambda h, w, t: (-linear_cross_entropy(h, w, t, reduction="none", **options), None)

    return [
        Peer(f"cut-cross-entropy {version}", head(), entropy=False),
        Peer(f"cut-cross-entropy {version}, no filter", head(filter_eps=None), entropy=False),
    ]


def _liger_cutedsl(_: Checkouts) -> list[Peer]:
    importlib.import_module("cutlass.cute")  # without it Liger silently takes a slow path
    module = importlib.import_module("liger_kernel.ops.fused_linear_scaled_cross_entropy")
    function = module.LigerFusedLinearScaledCrossEntropyFunction

    def head(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        loss, entropy = function.apply(hidden, weight, labels, 1.0, -100, 1, True)
        return -loss, entropy

    version = importlib.metadata.version("liger-kernel")
    return [Peer(f"Liger {version}, CuTe DSL", head, entropy=True)]


def _liger(_: Checkouts) -> list[Peer]:
    fused = importlib.import_module("liger_kernel.ops.fused_linear_cross_entropy")
    function = fused.LigerFusedLinearCrossEntropyFunction

    def head(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, None]:
        out = function.apply(hidden, weight, labels, None, None, -100, 0.0, 0.0, "sum")
        return -(out[0] if isinstance(out, tuple) else out), None

    version = importlib.metadata.version("liger-kernel")
    return [Peer(f"Liger {version}, summed loss alone", head, entropy=False, unit_grad=True)]


def _skyrl_triton(checkouts: Checkouts) -> list[Peer]:
    module = import_from(checkouts.skyrl, f"{_SKYRL}.fused_linear_logprob_triton", _SKYRL_FOLDERS)
    return [Peer("SkyRL, triton", _sharded(module.FusedLinearLogprobTriton, 1024), entropy=False)]


def _skyrl(checkouts: Checkouts) -> list[Peer]:
    module = import_from(checkouts.skyrl, f"{_SKYRL}.model_utils", _SKYRL_FOLDERS)
    function = module.FusedLinearChunkedDistributedLogprob
    return [Peer("SkyRL, torch, chunk 1024", _sharded(function, 1024), entropy=False, slow=True)]


_SKYRL = "skyrl.backends.skyrl_train.distributed.megatron"
_SKYRL_FOLDERS = [_SKYRL.rsplit(".", depth)[0] for depth in (4, 3, 2, 1)] + [_SKYRL]


def _nemo_rl(checkouts: Checkouts) -> list[Peer]:
    folders = ["nemo_rl", "nemo_rl.distributed", "nemo_rl.algorithms"]
    module = import_from(checkouts.nemo_rl, "nemo_rl.distributed.model_utils", folders)
    function = module.ChunkedDistributedHiddenStatesToLogprobs

    def head(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, None]:
        group = _world()
        return function.apply(hidden[:, None], labels[None], weight, 0, len(weight), 256, group, False)[0], None

    return [Peer("NeMo RL, chunk 256", head, entropy=False, slow=True)]


def _sharded(function: Any, chunk: int) -> Head:
    """A function over the shards of a group, called with a group of one."""

    def head(hidden: Tensor, weight: Tensor, labels: Tensor) -> tuple[Tensor, None]:
        return function.apply(hidden[None], weight, labels[None], 0, len(weight), chunk, _world(), False)[0], None

    return head


def _world() -> Any:
    if not dist.is_initialized():
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    return dist.group.WORLD
