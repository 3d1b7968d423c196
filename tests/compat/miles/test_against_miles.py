"""Against miles' own functions, from a checkout: the same values and gradients on the same models."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from downstream.checkouts import MILES, checkouts, loaded
from downstream.micro_batches import ARGS, contiguous, packed, padded, trained_on, wrapped_model
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_agree
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import DeferredHead, attach
from mcore_unpatch.compat.miles import calculate_log_probs_and_entropy, get_log_probs_and_entropy

MODULE = "miles.backends.training_utils.loss_hub.logit_processors"


def _tell_miles_the_groups() -> None:
    """Of miles' own parallel state, what these functions read."""
    from miles.backends.training_utils.parallel import set_parallel_state  # type: ignore[import-not-found]

    def known(group: Any) -> Any:
        return SimpleNamespace(rank=group.rank(), size=group.size(), group=group)

    tp, cp = parallel_state.get_tensor_model_parallel_group(), parallel_state.get_context_parallel_group()
    set_parallel_state(SimpleNamespace(tp=known(tp), cp=known(cp)))


def _assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor], dtype: torch.dtype) -> None:
    """Megatron's fused cross-entropy, which miles calls, rounds the gradient of the logits to bf16."""
    values = {name for name in theirs if name.startswith(("log_probs", "entropy"))}
    for names, precision in ((values, dtype), (theirs.keys() - values, torch.bfloat16)):
        assert_agree({name: ours[name] for name in names}, {name: theirs[name] for name in names}, precision)


CASES = [
    (Case(), {}),
    (Case(), {"rollout_temperature": 0.0, "log_probs_chunk_size": -1, "entropy_coef": 0.0}),
    (Case(tp=2, sequence_parallel=True), {}),
    (Case(cp=2, tp=2), {}),
    (Case(cp=2), {"allgather_cp": True}),
    (Case(), {"qkv_format": "bshd"}),
    (Case(cp=2), {"qkv_format": "bshd"}),
    (Case(dtype=torch.bfloat16), {}),
]


@pytest.mark.parametrize(("case", "options"), CASES, ids=str)
@pytest.mark.parametrize("checkout", checkouts(MILES))
@on_ranks
def test_log_probs_and_entropy_of_responses(case: Case, checkout: str, options: dict[str, Any]) -> None:
    """`get_log_probs_and_entropy`: theirs from logits; theirs from lazy logits with our operator; and ours."""
    torch._dynamo.config.disable = True  # Megatron's fused cross-entropy is compiled, which needs a compiler
    args = Namespace(**{**vars(ARGS), **options})
    layout = contiguous if args.allgather_cp else packed if args.qkv_format == "thd" else padded
    batch, model = layout(case), wrapped_model(case)
    asked = {**batch.samples, "args": args, "with_entropy": True, "entropy_requires_grad": args.entropy_coef != 0}
    with loaded(checkout, "miles", MODULE) as miles:
        _tell_miles_the_groups()
        logits = model(**batch.call)
        expected = trained_on(model, logits, miles.get_log_probs_and_entropy(logits, **asked))
        logits = model(**batch.call)  # real ones go to miles' own function
        real = trained_on(model, logits, get_log_probs_and_entropy(logits, **asked))
        assert all(torch.equal(real[name], value) for name, value in expected.items())
        with attach(model, DeferredHead()):
            lazy = model(**batch.call)
            ours = get_log_probs_and_entropy(lazy, **asked)
            _assert_same(trained_on(model, lazy, ours), expected, case.dtype)
            # What a rewritten import does: miles' own code around our operator.
            miles.calculate_log_probs_and_entropy = calculate_log_probs_and_entropy
            lazy = model(**batch.call)
            mixed = miles.get_log_probs_and_entropy(lazy, **asked)
            _assert_same(trained_on(model, lazy, mixed), expected, case.dtype)
    assert ours["entropy"][0].requires_grad == (args.entropy_coef != 0)
