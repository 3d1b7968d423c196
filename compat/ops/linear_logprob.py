"""Log-probs, entropy and top-k logits from hidden states and the LM-head weight."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.distributed import ProcessGroup


@dataclass(frozen=True)
class VocabOutput:
    """What one pass over the vocabulary gives; each tensor has the shape of `labels` (`[..., k]` for top-k)."""

    logprobs: Tensor | None
    entropy: Tensor | None
    logsumexp: Tensor
    topk_logits: Tensor | None
    topk_ids: Tensor | None


def vocab_pass(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor | None = None,
    *,
    temperature: float | Tensor = 1.0,
    logit_scale: float = 1.0,
    mask: Tensor | None = None,
    mask_count: int | None = None,
    entropy: bool = False,
    topk: int = 0,
    vocab_size: int | None = None,
    tp_group: ProcessGroup | None = None,
    reduce_hidden_grad: bool = True,
    fuse_main_grad: bool = False,
    ignore_index: int | None = -100,
    out_of_vocab_grad: Literal["zero", "legacy"] = "zero",
    backend: Literal["auto", "torch", "triton"] = "auto",
    tile_bytes: int | None = None,
) -> VocabOutput:
    """One pass over the vocabulary for everything asked: see `linear_logprob` for the arguments."""
    if tp_group is not None and tp_group.size() > 1:
        raise NotImplementedError("tensor parallelism is not here yet")
    logits = torch.nn.functional.linear(hidden.to(weight.dtype), weight)[..., :vocab_size].float() * logit_scale
    logits = logits / (temperature[..., None] if isinstance(temperature, Tensor) and temperature.dim() else temperature)
    keep = torch.ones(hidden.shape[:-1], dtype=torch.bool) if mask is None else mask != 0
    logsumexp = logits.logsumexp(-1)
    found = logprobs = None
    if labels is not None:
        found = (labels >= 0) & (labels < logits.shape[-1]) & (labels != ignore_index) & keep
        picked = logits.gather(-1, labels.where(found, 0)[..., None]).squeeze(-1)
        logprobs = (picked - logsumexp).where(found, 0)
    probabilities = logits.softmax(-1)
    spread = (logsumexp - (probabilities * logits).sum(-1)).where(keep, 0) if entropy else None
    top = logits.topk(topk) if topk else None
    return VocabOutput(logprobs, spread, logsumexp.where(keep, 0), top and top.values, top and top.indices)


def linear_logprob(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    *,
    temperature: float | Tensor = 1.0,
    logit_scale: float = 1.0,
    mask: Tensor | None = None,
    mask_count: int | None = None,
    entropy: bool = False,
    vocab_size: int | None = None,
    tp_group: ProcessGroup | None = None,
    reduce_hidden_grad: bool = True,
    fuse_main_grad: bool = False,
    ignore_index: int | None = -100,
    out_of_vocab_grad: Literal["zero", "legacy"] = "zero",
    backend: Literal["auto", "torch", "triton"] = "auto",
    tile_bytes: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Per-token log-probs (and entropy) of `labels` under `softmax(hidden @ weight.T * logit_scale / temperature)`."""
    out = vocab_pass(
        hidden,
        weight,
        labels,
        temperature=temperature,
        logit_scale=logit_scale,
        mask=mask,
        mask_count=mask_count,
        entropy=entropy,
        vocab_size=vocab_size,
        tp_group=tp_group,
        reduce_hidden_grad=reduce_hidden_grad,
        fuse_main_grad=fuse_main_grad,
        ignore_index=ignore_index,
        out_of_vocab_grad=out_of_vocab_grad,
        backend=backend,
        tile_bytes=tile_bytes,
    )
    assert out.logprobs is not None
    return out.logprobs, out.entropy
