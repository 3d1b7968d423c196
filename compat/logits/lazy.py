"""Logits that are not there: hidden states and the LM head, and what can be computed from the two."""

import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.utils._pytree import register_pytree_node

from mcore_unpatch.compat.fused_head.divergence import Kind
from mcore_unpatch.compat.fused_head.linear_kl import linear_kl
from mcore_unpatch.compat.fused_head.linear_logprob import PassSettings, VocabOutput, vocab_pass
from mcore_unpatch.compat.fused_head.problem import needed
from mcore_unpatch.compat.fused_head.weight_grad import into_main_grad
from mcore_unpatch.compat.hook.call import Outputs
from mcore_unpatch.compat.hook.errors import HookError
from mcore_unpatch.compat.hook.groups import ProcessGroups
from mcore_unpatch.compat.logits.like_a_tensor import LikeATensor


@dataclass(frozen=True)
class LMHead(PassSettings):
    """This rank's shard of an LM head, and how a pass over the vocabulary reads it (see `linear_logprob`)."""

    weight: Tensor  # [vocab / tp, h]
    version: int  # of the weight when the model ran
    logit_scale: float
    fuse_main_grad: bool
    groups: ProcessGroups

    @property
    def tp_group(self) -> ProcessGroup | None:
        """The ranks that hold the shards."""
        return self.groups.tp

    def read(self) -> Tensor:
        """The weight, which must be the one the model ran with."""
        if self.weight.untyped_storage().size() == 0:
            raise HookError(
                "the LM head's weight was freed after the forward (FSDP shards it again), so nothing can be computed "
                "from these logits; leave the output layer unsharded, or attach LogProbs(), which computes inside the "
                "forward."
            )
        if version_of(self.weight) != self.version:
            raise HookError(
                "the LM head's weight was written to after the forward that returned these logits (an optimizer step, "
                "loaded weights); ask for log-probs before that, or run the model again."
            )
        return self.weight


def version_of(tensor: Tensor) -> int:
    """How often a tensor was written to (not counted in inference mode)."""
    return 0 if tensor.is_inference() else tensor._version


@dataclass(frozen=True, eq=False, repr=False)
class LazyLogits(LikeATensor):
    """Stands for logits `[..., vocab / tp]` that were never computed.

    Every method makes its own pass over the vocabulary in tiles, with gradients to the hidden states and the head;
    `compute` gives several results from one pass. Results are float32 (float64 for a float64 head), of the whole
    vocabulary on every tensor-parallel rank, shaped like the tokens. `logits()` alone builds `[..., vocab / tp]`.

    Tokens can be selected and rearranged as those of a tensor: `logits[0, start:end]`, `logits[mask]`, `squeeze(0)`,
    `view(-1, vocab)`, `torch.cat([...])`. `logits / temperature` is supported, for a number or one per token.
    Everything else that a tensor can do raises a TypeError that says what to use.
    """

    hidden: Tensor  # [..., h]
    head: LMHead
    temperature: float | Tensor = 1.0  # a tensor is [..., 1]

    def compute(
        self,
        labels: Tensor | None = None,
        *,
        entropy: bool = False,
        topk: int = 0,
        token_ids: Tensor | None = None,
        sum_pi_squared: bool = False,
        logit_stats: bool = False,
        keep_mask: Tensor | None = None,
        mask: Tensor | None = None,
        mask_count: int | None = None,
    ) -> VocabOutput:
        """Everything asked for from one pass over the vocabulary; the arguments are those of `vocab_pass`."""
        head, temperature = self.head, self.temperature
        return vocab_pass(
            self.hidden,
            self._read(),
            labels,
            temperature=temperature.squeeze(-1) if isinstance(temperature, Tensor) else temperature,
            logit_scale=head.logit_scale,
            mask=mask,
            mask_count=mask_count,
            entropy=entropy,
            topk=topk,
            token_ids=token_ids,
            sum_pi_squared=sum_pi_squared,
            keep_mask=keep_mask,
            logit_stats=logit_stats,
            tp_group=head.tp_group,
            reduce_hidden_grad=False,  # the hidden states sum their gradient themselves, once for all passes
            fuse_main_grad=head.fuse_main_grad,
            **head.settings,
        )

    def log_probs(self, labels: Tensor, *, mask: Tensor | None = None, keep_mask: Tensor | None = None) -> Tensor:
        """Log-probs of `labels` `[...]`, global token ids aligned with the logits; 0 where there is no label."""
        return needed(self.compute(labels, mask=mask, keep_mask=keep_mask).logprobs)

    def log_probs_at(self, token_ids: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Log-probs `[..., k]` of `token_ids` `[..., k]`, such as those of a teacher's top k."""
        return needed(self.compute(token_ids=token_ids, mask=mask).token_logprobs)

    def entropy(self, *, mask: Tensor | None = None) -> Tensor:
        """The entropy of every token's distribution."""
        return needed(self.compute(entropy=True, mask=mask).entropy)

    def top_k(self, k: int, *, mask: Tensor | None = None) -> Outputs:
        """`Outputs(topk_logits, topk_ids, logsumexp)` of the whole vocabulary: `[..., k]`, `[..., k]` and `[...]`.

        `topk_logits - logsumexp[..., None]` are log-probs; the ids are global.
        """
        out = self.compute(topk=k, mask=mask)
        return Outputs(topk_logits=out.topk_logits, topk_ids=out.topk_ids, logsumexp=out.logsumexp)

    def sum_pi_squared(self, *, mask: Tensor | None = None) -> Tensor:
        """The sum of the squared probabilities of every token."""
        return needed(self.compute(sum_pi_squared=True, mask=mask).sum_pi_squared)

    def logit_stats(self, *, mask: Tensor | None = None) -> Outputs:
        """`Outputs(logit_min, logit_max, logit_mean, logit_norm)` over the whole vocabulary, without gradient."""
        out = self.compute(logit_stats=True, mask=mask)
        return Outputs(**{name: getattr(out, name) for name in ("logit_min", "logit_max", "logit_mean", "logit_norm")})

    def kl(
        self,
        teacher: "LazyLogits",
        *,
        kind: Kind = "forward",
        beta: float = 0.5,
        mask: Tensor | None = None,
        mask_count: int | None = None,
    ) -> Tensor:
        """The divergence from the distribution of `teacher`, the same tokens of another model (see `linear_kl`).

        A pass of its own. Gradients go to both models; call the teacher under `torch.no_grad()`.
        """
        if not isinstance(teacher, LazyLogits):
            raise TypeError(f"teacher: expected the LazyLogits of another model, got {type(teacher).__name__}")
        mine, theirs = self.temperature, teacher.temperature
        same = mine is theirs or (not isinstance(mine, Tensor) and not isinstance(theirs, Tensor) and mine == theirs)
        if not same or self.head.logit_scale != teacher.head.logit_scale:
            raise ValueError(
                "teacher: its logits have another temperature or MuP scale than the student's, and the divergence is "
                "computed with one for both; divide both by the same."
            )
        factor = self._factor
        return linear_kl(
            self.hidden,
            self._read(),
            teacher.hidden,
            teacher._read(),
            kind=kind,
            beta=beta,
            temperature=1 / factor.squeeze(-1) if isinstance(factor, Tensor) else 1 / factor,
            mask=mask,
            mask_count=mask_count,
            vocab_size=self.head.vocab_size,
            tp_group=self.head.tp_group,
            reduce_hidden_grad=False,
            fuse_main_grad=self.head.fuse_main_grad,
            tile_bytes=self.head.tile_bytes,
        )

    def logits(self) -> Tensor:
        """The real logits `[..., vocab / tp]`, scaled and divided by the temperature, as Megatron would return them.

        This is what the rest of this class avoids: 4 bytes for each token and each word of this rank's vocabulary (6
        while a 16-bit model's are converted), as much again for the gradient, and whatever you compute from them: 2.3
        GiB each for 4,096 tokens and 151,936 words. Select the tokens you need first: `logits[0, -1:].logits()`.
        """
        product = torch.nn.functional.linear(self.hidden.to(self.head.weight.dtype), self._weight())
        factor = self._factor
        product = product.to(self.dtype)
        return product if isinstance(factor, float) and factor == 1 else product * factor

    def sum(self, *dims: Any, **options: Any) -> Tensor:
        """The sum of this rank's logits, without building them: for `loss + 0 * logits.sum()`, which keeps a graph."""
        if dims or options:
            raise self._no("sum over some dimensions")
        factor = self._factor
        rows = self.hidden * factor if isinstance(factor, Tensor) else self.hidden
        total = rows.reshape(-1, rows.shape[-1]).sum(0, dtype=self.dtype) @ self._weight().sum(0, dtype=self.dtype)
        return total if isinstance(factor, Tensor) else total * factor

    def mean(self, *dims: Any, **options: Any) -> Tensor:
        """The mean of this rank's logits, without building them."""
        return self.sum(*dims, **options) / self.shape.numel()

    @property
    def _factor(self) -> float | Tensor:
        return self.head.logit_scale / self.temperature

    def _read(self) -> Tensor:
        if self.hidden.requires_grad and not torch.is_grad_enabled():
            _refuse_reentrant_checkpoints()
        return self.head.read()

    def _weight(self) -> Tensor:
        """The weight for code that multiplies by it directly."""
        weight = self._read()
        return into_main_grad(weight) if self.head.fuse_main_grad else weight


def _refuse_reentrant_checkpoints() -> None:
    """Raise inside a checkpoint that looks for gradients in tensors alone: the loss would silently have none."""
    frame = sys._getframe()
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_qualname == "CheckpointFunction.forward":
            raise HookError(
                "LazyLogits were passed to a reentrant checkpoint, which finds no tensor to differentiate in them, so "
                "that the loss would have no gradient; pass use_reentrant=False to torch.utils.checkpoint.checkpoint."
            )


# PyTorch's FSDP looks for tensors in what a module returns, and starts its backward from them.
register_pytree_node(
    LazyLogits,
    lambda logits: ([logits.hidden], logits),
    lambda children, logits: logits._with(next(iter(children)), logits.temperature),
)
