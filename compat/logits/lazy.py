"""Logits that are not there: hidden states and the LM head, and what can be computed from the two."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, wraps
from importlib import import_module
from inspect import signature
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import register_pytree_node

from mcore_unpatch.compat.fused_head.autograd import into_main_grad
from mcore_unpatch.compat.fused_head.linear_kl import Divergence, Kind, run_kl
from mcore_unpatch.compat.fused_head.linear_logprob import VocabOutput, run_pass
from mcore_unpatch.compat.fused_head.problem import needed, waiting_is_free
from mcore_unpatch.compat.fused_head.settings import HeadSettings, LogprobQuery, PassSettings, VocabQuery
from mcore_unpatch.compat.hook.call import HookCall, HookContext, Outputs, ProcessGroups
from mcore_unpatch.compat.hook.find import foreign_code
from mcore_unpatch.compat.hook.head import fuses_weight_grad, whole_hidden
from mcore_unpatch.compat.hook.state import HookError, refuse_reentrant_checkpoint, version_of
from mcore_unpatch.compat.logits.like_a_tensor import LikeATensor

_NUMBERS = 1 << 16  # of the weight in the sample: a step that 16 bits can hold changes hundreds of them
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@cache
def _steps() -> list[int]:
    """How often any optimizer of this process has stepped, counted from the first call on."""
    seen = [0]

    def count(*_: Any) -> None:
        seen[0] += 1

    register_optimizer_step_post_hook(count)
    return seen


def _sample(weight: Tensor) -> Tensor:
    """Numbers from all over the weight as bits; the odd stride visits every column."""
    stride = weight.numel() // _NUMBERS | 1
    return weight.detach().reshape(-1)[::stride].view(_BITS[weight.itemsize])


@dataclass(frozen=True, eq=False)
class LMHead:
    """This rank's shard of an LM head, and how a pass over the vocabulary reads it."""

    weight: Tensor  # [vocab / tp, h]
    settings: HeadSettings
    groups: ProcessGroups
    version: int  # of the weight when the model ran, as are the next two
    steps: int
    sample: Tensor

    @classmethod
    def of(cls, weight: Tensor, groups: ProcessGroups, settings: HeadSettings | None = None) -> "LMHead":
        """The head as it is now. The hidden states sum their gradient over the ranks, once for all passes."""
        settings = replace(settings or HeadSettings(), tp_group=groups.tp, reduce_hidden_grad=False)
        return cls(weight, settings, groups, version_of(weight), _steps()[0], _sample(weight).clone())

    def read(self) -> tuple[Tensor, Tensor | None]:
        """The weight, which must be as the model ran with it: or it raises.

        Where finding out would mean waiting, there is a flag on its device beside it.
        """
        weight = self.weight
        if weight.untyped_storage().size() == 0:
            raise HookError(
                "the LM head's weight was freed after the forward (FSDP shards it again), so nothing can be computed "
                "from these logits; leave the output layer unsharded, or attach LogProbs(), which computes inside the "
                "forward."
            )
        same = (_sample(weight) == self.sample).all()
        known = waiting_is_free(weight) or (weight.is_cuda and _steps()[0] != self.steps)
        if version_of(weight) != self.version or (known and not same):
            raise HookError(
                "the LM head's weight was written to after the forward that returned these logits (an optimizer step, "
                "loaded weights); ask for log-probs before that, or run the model again."
            )
        return weight, None if known else same


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

    def compute(self, labels: Tensor | None = None, **asked: Any) -> VocabOutput:
        """Everything asked for from one pass over the vocabulary; the arguments are those of `vocab_pass`."""
        temperature = self.temperature
        own = temperature.squeeze(-1) if isinstance(temperature, Tensor) else temperature
        query = self.head.settings.widened(VocabQuery, labels=labels, temperature=own, **asked)
        weight, sound = self._read()
        out = run_pass(self.hidden, weight, query)
        return out if sound is None else out.each(lambda value: _where(sound, value))

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
        teacher.require_vocabulary(self.head.settings.vocab_size)
        weight, sound = self._read()
        other, other_sound = teacher._read()
        values = run_kl(
            (self.hidden, weight, teacher.hidden, other),
            Divergence(kind, beta),
            (self._divisor, teacher._divisor),
            self.head.settings.widened(LogprobQuery, mask=mask, mask_count=mask_count),
        )
        return _where(other_sound, _where(sound, values))

    def logits(self) -> Tensor:
        """The real logits `[..., vocab / tp]`, scaled and divided by the temperature, as Megatron would return them.

        This is what the rest of this class avoids: 4 bytes for each token and each word of this rank's vocabulary (6
        while a 16-bit model's are converted), as much again for the gradient, and whatever you compute from them: 2.3
        GiB each for 4,096 tokens and 151,936 words. Select the tokens you need first: `logits[0, -1:].logits()`.
        """
        weight, sound = self._product_weight()
        product = torch.nn.functional.linear(self.hidden.to(weight.dtype), weight).to(self.dtype)
        factor = self._factor
        return _where(sound, product if isinstance(factor, float) and factor == 1 else product * factor)

    def sum(self, *dims: Any, **options: Any) -> Tensor:
        """The sum of this rank's logits, without building them: for `loss + 0 * logits.sum()`, which keeps a graph."""
        if dims or options:
            raise self._no("sum over some dimensions")
        factor = self._factor
        weight, sound = self._product_weight()
        rows = self.hidden * factor if isinstance(factor, Tensor) else self.hidden
        total = rows.reshape(-1, rows.shape[-1]).sum(0, dtype=self.dtype) @ weight.sum(0, dtype=self.dtype)
        return _where(sound, total if isinstance(factor, Tensor) else total * factor)

    def mean(self, *dims: Any, **options: Any) -> Tensor:
        """The mean of this rank's logits, without building them."""
        return self.sum(*dims, **options) / self.shape.numel()

    def require_vocabulary(self, vocab_size: int | None) -> None:
        """Raise if these logits, a teacher's, are of other words than the student's `vocab_size`."""
        own = self.head.settings.vocab_size
        if own is not None and own != vocab_size:
            raise ValueError(f"teacher: its vocab_size is {own} and the student's {vocab_size}; give both the same.")

    @property
    def _factor(self) -> float | Tensor:
        return self.head.settings.logit_scale / self.temperature

    @property
    def _divisor(self) -> float | Tensor:
        """Factor and temperature in one, as an operator takes it."""
        divisor = self.temperature / self.head.settings.logit_scale
        return divisor.squeeze(-1) if isinstance(divisor, Tensor) else divisor

    def _read(self) -> tuple[Tensor, Tensor | None]:
        if self.requires_grad:
            refuse_reentrant_checkpoint("LazyLogits were", returned=False)
        return self.head.read()

    def _product_weight(self) -> tuple[Tensor, Tensor | None]:
        """The same for code that multiplies by the weight directly."""
        weight, sound = self._read()
        return into_main_grad(weight) if self.head.settings.fuse_main_grad else weight, sound


def _where(sound: Tensor | None, values: Tensor) -> Tensor:
    """Results, or NaN where the head has changed."""
    if sound is None or not values.dtype.is_floating_point:
        return values
    return values.where(sound, torch.nan)


def _tensors_of(logits: LazyLogits) -> tuple[list[Tensor], tuple[LazyLogits, Tensor]]:
    """The hidden states, and a view of the weight: hooks that somebody registers on it end with it."""
    weight = logits.head.weight.view_as(logits.head.weight)
    return [logits.hidden, weight], (logits, weight)


def _from_tensors(children: Any, context: tuple[LazyLogits, Tensor]) -> LazyLogits:
    """Other hidden states; of what became of the weight, only whether it was detached."""
    (hidden, weight), (logits, before) = children, context
    if before.requires_grad and not getattr(weight, "requires_grad", True):
        logits = logits.detach()
    return logits._with(hidden, logits.temperature)


# PyTorch's FSDP looks for tensors in what a module returns, and starts its backward from them.
register_pytree_node(LazyLogits, _tensors_of, _from_tensors)


@dataclass(frozen=True, kw_only=True)
class DeferredHead(PassSettings):
    """A model with this attached returns `LazyLogits` `[b, s, vocab / tp]` where it returned logits.

    A call with labels returns the loss `[b, s]`, as Megatron does, without building logits either; only a model with a
    `compute_language_model_loss` of its own gets them for it. With `own_loss=False` it gives the cross-entropy, too.
    The other options are those of `linear_logprob`; a `temperature` in the context overrides the option.
    """

    own_loss: bool = True

    def __call__(self, **keywords: Any) -> LazyLogits | Tensor:
        """Return the logits' stand-in, or the loss of the call's labels."""
        call = HookCall.of(keywords)
        context = HookContext.of(call.context)
        for name in ("labels", "mask", "mask_count", "lengths", "keep_mask", "token_ids", "teacher"):
            if getattr(context, name) is not None:
                raise TypeError(
                    f"output_processor_context: {name!r} has no effect on DeferredHead, which computes nothing in the "
                    "forward; pass it to the method of LazyLogits that you call."
                )
        groups = call.groups
        asked = call.runtime_gather_output
        gathers = getattr(call.output_layer, "gather_output", False) if asked is None else asked
        if gathers and groups.tp is not None and groups.tp.size() > 1:
            raise HookError(
                "this call asks for the logits of the whole vocabulary on every rank (runtime_gather_output, or "
                "parallel_output=False), and LazyLogits stand for this rank's; leave that out: their log-probs and "
                "other results are of the whole vocabulary anyway."
            )
        hidden = whole_hidden(call, groups)  # [s, b, h]
        own = {"logit_scale": call.logit_scale, "fuse_main_grad": fuses_weight_grad(call), "temperature": 1.0}
        settings = self.widened(HeadSettings, **own)  # the temperature is that of the logits
        logits = LazyLogits(hidden.transpose(0, 1).contiguous(), LMHead.of(call.weight, groups, settings))
        if not torch.is_grad_enabled():
            if call.labels is None:
                refuse_reentrant_checkpoint("LazyLogits are", returned=True)
            logits = logits.detach()  # as logits made now have no graph, whoever asks later
        temperature = self.temperature if context.temperature is None else context.temperature
        if isinstance(temperature, Tensor) and temperature.dim() > 0:
            temperature = temperature[..., None]  # [b, s, 1]
        logits = logits / temperature
        has_own = self.own_loss and foreign_code(call.compute_language_model_loss) is not None
        if call.labels is not None and has_own:
            whole = logits.logits().transpose(0, 1).contiguous()  # the model's own loss may be more than cross-entropy
            return call.compute_language_model_loss(call.labels, whole)
        return logits if call.labels is None else -logits.log_probs(call.labels)


Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def real_logits_to(home: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Call the decorated function with `LazyLogits`, and the function of its name in module `home` with real logits."""

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        first, name = next(iter(signature(function).parameters)), function.__name__

        @wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            logits = args[0] if args else kwargs.get(first)
            if isinstance(logits, LazyLogits):
                return function(*args, **kwargs)
            own: Any = None
            with suppress(ImportError):
                own = getattr(import_module(home), name, None)
            if own is None or str(getattr(own, "__module__", "")).startswith("mcore_unpatch."):  # it has become ours
                raise TypeError(
                    f"{name}: expected the LazyLogits that a model returns after attach(model, DeferredHead()), got "
                    f"{type(logits).__name__}, and there is no {home}.{name} for it; attach DeferredHead to this "
                    "model, too."
                )
            return own(*args, **kwargs)  # type: ignore[no-any-return]

        return call

    return decorate
