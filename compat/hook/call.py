"""The arguments of one call of the hook, as one typed and immutable value."""

from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Protocol

import torch
from torch import Tensor


class Processor(Protocol):
    """Anything Megatron can call as `output_processor`: it takes keywords and returns the model's output.

    It must take `**keywords`, so that a keyword added by a later Megatron cannot break it. `HookCall.of(keywords)`
    gives the typed view. In a schedule plan the result must be a tensor or a tuple of tensors (see `AsTuple`).
    """

    def __call__(self, **keywords: Any) -> Any:
        """Turn the decoder's output into the model's output."""


def require_processor(processor: Any) -> None:
    """Raise for something Megatron could not call, such as the class `LogProbs` where `LogProbs()` is meant."""
    if isinstance(processor, type):
        raise TypeError(f"processor: pass an instance: {processor.__name__}()")
    if not callable(processor):
        raise TypeError(f"processor: expected a callable that takes the hook's keywords, got {processor!r}")


def is_inference(keywords: Mapping[str, Any] | None = None) -> bool:
    """Whether Megatron's inference mode is on, or a call with these keywords is one for inference."""
    from megatron.core.inference.utils import InferenceMode

    given = keywords or {}
    asked = given.get("inference_context") is not None or given.get("inference_params") is not None
    return asked or InferenceMode.is_active()


@dataclass(frozen=True)
class HookCall:
    """The 16 keywords of Megatron's call; keywords this class does not know are kept in `extras`."""

    hidden_states: Tensor  # [s, b, h]; [s / tp, b, h] under sequence parallelism; s is the packed row for THD
    output_layer: Any
    output_weight: Tensor | None  # the shared embedding of tied models, else None
    labels: Tensor | None  # [b, s]
    loss_mask: Tensor | None  # [b, s]
    input_ids: Tensor | None  # [b, s]
    position_ids: Tensor | None
    attention_mask: Tensor | None
    decoder_input: Tensor | None
    inference_context: Any
    packed_seq_params: Any
    runtime_gather_output: bool | None
    context: Any
    compute_language_model_loss: Callable[[Tensor, Tensor], Tensor]
    scale_logits: Callable[[Tensor], Tensor]
    config: Any
    extras: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, keywords: Mapping[str, Any]) -> "HookCall":
        """The typed view of one call; raises a TypeError that names the missing keywords."""
        missing = [name for name in KEYWORDS if name not in keywords]
        if missing:
            raise TypeError(
                f"this call of the processor is missing {', '.join(missing)}; let Megatron call it, or pass all "
                f"{len(KEYWORDS)} keywords that Megatron passes."
            )
        extras = MappingProxyType({name: value for name, value in keywords.items() if name not in KEYWORDS})
        return cls(**{name: keywords[name] for name in KEYWORDS}, extras=extras)

    @property
    def weight(self) -> Tensor:
        """This rank's shard `[vocab / tp, h]` of the LM head, tied or not."""
        weight: Tensor = self.output_layer.weight if self.output_weight is None else self.output_weight
        return weight

    @property
    def logit_scale(self) -> float:
        """The factor by which `scale_logits` (MuP) multiplies the logits, measured by calling it."""
        zero, one, two = self.scale_logits(torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)).tolist()
        if zero != 0 or two != 2 * one:
            raise NotImplementedError(
                "this model's scale_logits does not multiply by a constant; use the Logits processor."
            )
        return float(one)

    def finish(self, logits: Tensor) -> Tensor:
        """What Megatron returns without labels: `[s, b, ...]` scaled (MuP) and turned to `[b, s, ...]`."""
        return self.scale_logits(logits).transpose(0, 1).contiguous()


KEYWORDS = tuple(f.name for f in fields(HookCall) if f.name != "extras")


class Outputs:
    """Several results of one call by name, `out.entropy` or `out["entropy"]`, or in order: `log_probs, entropy = out`.

    As of a dict there are `keys()`, `values()` and `items()`, `in` asks for a name, and `**out` passes all by name.
    """

    def __init__(self, **results: Any) -> None:
        self.__dict__.update(results)

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"this call returned no {name!r}; it returned {', '.join(self.__dict__)}.")
        return self.__dict__[name]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this call returned no {name!r}; it returned {', '.join(self.__dict__)}.")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot set {name!r}: the results of a call are read-only.")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.__dict__.values())

    def __len__(self) -> int:
        return len(self.__dict__)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self.__dict__

    def keys(self) -> KeysView[str]:
        """The names."""
        return self.__dict__.keys()

    def values(self) -> ValuesView[Any]:
        """The results."""
        return self.__dict__.values()

    def items(self) -> ItemsView[str, Any]:
        """Names and results."""
        return self.__dict__.items()

    def __repr__(self) -> str:
        return f"Outputs({', '.join(f'{name}={value!r}' for name, value in self.items())})"
