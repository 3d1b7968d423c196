"""Specs that name another class: the same values and gradients as with that class's method put on Megatron's."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from harness import on_ranks

from mcore_unpatch.compat import with_classes


class Old:
    """A class that a spec names."""

    @classmethod
    def build(cls, **_: Any) -> str:
        return cls.__name__


class New(Old):
    """One in its place."""


class Other(Old):
    """Another subclass, which no spec is to lose."""


@dataclass
class ModuleSpec:
    """As Megatron's."""

    module: Any
    submodules: Any = None
    params: Any = None


@dataclass(frozen=True)
class LayerSubmodules:
    """As Megatron's, and frozen."""

    attention: Any = Old
    mlp: Any = None


class Pair(NamedTuple):
    """Two parts."""

    one: Any
    two: Any


def test_every_place_that_names_the_class_names_the_other() -> None:
    spec = ModuleSpec(
        module=Other,
        submodules=[
            LayerSubmodules(mlp=partial(Old.build, submodules=LayerSubmodules(attention=ModuleSpec(Old)))),
            (Old, Pair(Old, 1)),
        ],
        params={"at": (__name__, "Old"), "elsewhere": ("a.module", "Old"), "kind": Old},
    )
    before = repr(spec)
    made = with_classes(spec, {Old: New})
    first, (plain, pair) = made.submodules
    assert (made.module, first.attention, plain, pair) == (Other, New, New, Pair(New, 1))
    assert first.mlp() == "New"
    assert first.mlp.keywords["submodules"].attention.module is New
    assert made.params == {"at": New, "elsewhere": ("a.module", "Old"), "kind": New}
    assert repr(spec) == before, "the given one is not changed"


def test_what_is_shared_stays_shared_and_what_names_nothing_is_the_same() -> None:
    layer, other = ModuleSpec(Old), ModuleSpec(Other)
    made = with_classes([layer, layer, other], {Old: New})
    assert made[0] is made[1] and made[0] is not layer
    assert made[2] is other


def test_a_class_that_is_not_named_is_an_error_that_says_what_is() -> None:
    spec = ModuleSpec(Other, LayerSubmodules(attention=New))
    with pytest.raises(ValueError, match=r"does not name Old\. It names New, Other\. Give the class"):
        with_classes(spec, {Old: New})
    assert with_classes(spec, {Old: New}, needed=False) is spec
    with pytest.raises(ValueError, match="does not name Old"):  # one of two
        with_classes(spec, {Other: New, Old: New})


def test_a_function_that_holds_the_class_is_an_error() -> None:
    kind = Old
    with pytest.raises(ValueError, match="builds Old itself"):
        with_classes(ModuleSpec(Old, LayerSubmodules(mlp=lambda: kind())), {Old: New})
    with pytest.raises(ValueError, match="builds Old itself"):
        with_classes(LayerSubmodules(attention=Other, mlp=lambda kind=Old: kind()), {Old: New}, needed=False)


def forward(self: Any, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
    """What a repository puts in the place of `SelfAttention.forward`."""
    from megatron.core.transformer.attention import SelfAttention

    out, bias = super(SelfAttention, self).forward(hidden_states * 1.5, *args, **kwargs)
    return out - 0.25 * hidden_states, bias


def model_and_gradients(case: Any, experts: int, classes: dict[Any, Any]) -> Any:
    from harness.attention import CpuAttention
    from harness.faithful import inputs_for
    from harness.models import build_config
    from harness.oracle import gradients_of
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec, get_gpt_mtp_block_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    torch.manual_seed(99)
    config = build_config(case)
    if experts:
        config.num_moe_experts, config.moe_router_topk, config.moe_ffn_hidden_size = experts, 2, 2 * case.hidden
        config.moe_token_dispatcher_type = "allgather"
    # On a CPU attention is another anyway: so much for a spec that was changed before.
    layer = with_classes(get_gpt_layer_local_spec(num_experts=experts or None), {DotProductAttention: CpuAttention})
    layer = with_classes(layer, classes) if classes else layer
    mtp = get_gpt_mtp_block_spec(config, layer, use_transformer_engine=False) if case.mtp else None
    model = GPTModel(config, layer, case.vocab, 4 * case.sequence, mtp_block_spec=mtp, position_embedding_type="rope")
    out = model(**inputs_for(case))
    out.sum().backward()
    return model, out.detach(), gradients_of(model)


@pytest.mark.parametrize(("mtp", "experts"), [(0, 0), (1, 0), (0, 4)])
@on_ranks
def test_a_gpt_model_gives_what_it_gave_with_the_patch(case: Any, mtp: int, experts: int) -> None:
    from megatron.core.transformer.attention import SelfAttention

    case = replace(case, mtp=mtp)
    _, plain, _ = model_and_gradients(case, experts, {})
    with mock.patch.object(SelfAttention, "forward", forward):
        _, patched, gradients = model_and_gradients(case, experts, {})
    subclass = type("PatchedSelfAttention", (SelfAttention,), {"forward": forward})
    model, out, ours = model_and_gradients(case, experts, {SelfAttention: subclass})
    assert torch.equal(out, patched) and not torch.equal(out, plain)
    assert ours.keys() == gradients.keys() and all(torch.equal(ours[name], gradients[name]) for name in ours)
    built = [type(module).__name__ for module in model.modules() if isinstance(module, SelfAttention)]
    assert built == ["PatchedSelfAttention"] * (2 + mtp)
