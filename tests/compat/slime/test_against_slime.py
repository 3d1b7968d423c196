"""Against slime's own functions, from a checkout: the same values and gradients on the same models."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from downstream.checkouts import SLIME, checkouts, loaded
from downstream.micro_batches import ARGS, RESPONSE, contiguous, packed, trained_on, wrapped_model
from harness import on_ranks
from harness.models import Case
from harness.rounding import assert_agree
from megatron.core import parallel_state
from torch import Tensor

from mcore_unpatch.compat import DeferredHead, attach
from mcore_unpatch.compat.slime import (
    calculate_log_probs_and_entropy,
    get_label_token_log_probs_from_vocab_parallel_logits,
    get_log_probs_and_entropy,
)

# A web client, an actor framework and a device API: imported beside the functions, which use none of them.
STAND_INS = {"slime.utils.http_utils": {"is_port_available": None}}
SERVER = {
    **STAND_INS,
    "ray": {},
    "slime.backends.megatron_utils.actor": {"MegatronTrainRayActor": object},
    "slime.backends.megatron_utils.data": {"get_data_iterator": None},
    "slime.backends.megatron_utils.model": {"forward_only": None},
    "slime.utils.accelerator": {},
}


@contextmanager
def their_loss(checkout: str) -> Iterator[Any]:
    with loaded(checkout, "slime", "slime.backends.megatron_utils.loss", STAND_INS) as module:
        yield module


def _top_p(case: Case) -> dict[str, list[list[int]]]:
    """Of each response token, some ids: its own among them or not; of the last tokens of a sample, nothing."""
    generator = torch.Generator().manual_seed(2)
    ids, offsets = [], []
    for response in RESPONSE:
        counts = torch.randint(1, 9, (max(response - 1, 0),), generator=generator)
        offsets.append([0, *counts.cumsum(0).tolist()])
        ids.append(torch.randint(0, case.vocab, (int(counts.sum()),), generator=generator).tolist())
    return {"top_p_token_ids": ids, "top_p_token_offsets": offsets}


CASES = [
    (Case(), {}),
    (Case(), {"rollout_temperature": 1.0, "log_probs_chunk_size": -1, "entropy_coef": 0.0}),
    (Case(tp=2, sequence_parallel=True), {}),
    (Case(cp=2), {}),
    (Case(cp=2, tp=2), {}),
    (Case(cp=2), {"allgather_cp": True}),
    (Case(tp=2), {"top_p": True}),
    (Case(cp=2), {"top_p": True}),
    (Case(cp=2), {"top_p": True, "allgather_cp": True}),
    (Case(dtype=torch.bfloat16), {}),
]


@pytest.mark.parametrize(("case", "options"), CASES, ids=str)
@pytest.mark.parametrize("checkout", checkouts(SLIME))
@on_ranks
def test_log_probs_and_entropy_of_responses(case: Case, checkout: str, options: dict[str, Any]) -> None:
    """`get_log_probs_and_entropy`: theirs from logits; theirs from lazy logits with our operator; and ours."""
    options = dict(options)
    top_p = _top_p(case) if options.pop("top_p", False) else {}
    args = Namespace(**{**vars(ARGS), **options})
    batch = (contiguous if args.allgather_cp else packed)(case)
    model = wrapped_model(case)
    asked: dict[str, Any] = {**batch.samples, **top_p, "args": args, "with_entropy": True}
    with their_loss(checkout) as slime:
        logits = model(**batch.call)
        _, theirs = slime.get_log_probs_and_entropy(logits, **asked)
        expected = trained_on(model, logits, theirs)
        with attach(model, DeferredHead()):
            lazy = model(**batch.call)
            empty, ours = get_log_probs_and_entropy(lazy, **asked)
            assert empty.shape == (0,)
            assert_agree(trained_on(model, lazy, ours), expected, case.dtype)
            # What a rewritten import does: slime's own code around our operator.
            slime.calculate_log_probs_and_entropy = calculate_log_probs_and_entropy
            lazy = model(**batch.call)
            _, mixed = slime.get_log_probs_and_entropy(lazy, **asked)
            assert_agree(trained_on(model, lazy, mixed), expected, case.dtype)
    assert ours["entropy"][0].requires_grad == (args.entropy_coef != 0)


POLICY = {
    "loss_type": "policy_loss",
    "advantage_estimator": "gspo",
    "eps_clip": 0.2,
    "eps_clip_high": 0.28,
    "eps_clip_c": None,
    "rollout_top_p": 1.0,
    **dict.fromkeys(["use_rollout_logprobs", "use_opsm", "get_mismatch_metrics", "use_tis", "use_kl_loss"], False),
}


@pytest.mark.parametrize(
    "options", [{}, {"recompute_loss_function": True}, POLICY], ids=["sft", "recomputed", "policy"]
)
@pytest.mark.parametrize("case", [Case(), Case(cp=2, tp=2, sequence_parallel=True)], ids=str)
@pytest.mark.parametrize("checkout", checkouts(SLIME))
@on_ranks
def test_the_whole_loss_function(case: Case, checkout: str, options: dict[str, Any]) -> None:
    """slime's whole `loss_function`, whose import of the one function is ours."""
    args = Namespace(**{**vars(ARGS), **options})
    batch, model = packed(case), wrapped_model(case)
    masks = [torch.ones(length) for length in RESPONSE]
    told = {**batch.samples, "loss_masks": masks, "rollout_mask_sums": [mask.sum() for mask in masks]}
    torch._dynamo.config.disable = True  # slime compiles parts of its loss, which needs a compiler

    def run(slime: Any) -> dict[str, Tensor]:
        output = model(**batch.call)
        _, old = slime.get_log_probs_and_entropy(output, args=args, **batch.samples)
        told["log_probs"] = [0.9 * part.detach() for part in old["log_probs"]]
        told["advantages"] = [part.cos() for part in told["log_probs"]]
        loss, _, log = slime.loss_function(args, told, 1, len(masks), output)
        return {**trained_on(model, output, {"loss": [loss]}), "log": log["values"].detach()}

    with their_loss(checkout) as slime:
        expected = run(slime)
        slime.get_log_probs_and_entropy = get_log_probs_and_entropy
        with attach(model, DeferredHead()):
            assert_agree(run(slime), expected, case.dtype)


@pytest.mark.parametrize("case", [Case(), Case(tp=2), Case(cp=2)], ids=str)
@pytest.mark.parametrize("checkout", checkouts(SLIME))
@on_ranks
def test_log_probs_of_label_tokens(case: Case, checkout: str) -> None:
    """The teacher's log-probs at given ids, response by response, as slime's server slices them."""
    batch, model = packed(case), wrapped_model(case)
    generator = torch.Generator().manual_seed(3)
    name = "slime.backends.megatron_utils.server.logprob_utils"

    def run(slime: Any, loss: Any, function: Any) -> dict[str, Tensor]:
        found = {}
        generator.manual_seed(3)
        for number, (chunk, _) in enumerate(loss.get_responses(model(**batch.call), args=ARGS, **batch.samples)):
            ids = torch.randint(0, case.vocab, (chunk.size(0), 3), generator=generator)
            found[str(number)] = function(chunk, ids)
        return found

    with loaded(checkout, "slime", name, SERVER) as server:
        import slime.backends.megatron_utils.loss as loss  # type: ignore[import-not-found]

        expected = run(server, loss, server.get_label_token_log_probs_from_vocab_parallel_logits)
        with attach(model, DeferredHead()):
            assert_agree(run(server, loss, get_label_token_log_probs_from_vocab_parallel_logits), expected)


@pytest.mark.parametrize("checkout", checkouts(SLIME))
@on_ranks(Case(tp=2))
def test_the_operator_by_itself(case: Case, checkout: str) -> None:
    """`calculate_log_probs_and_entropy` by itself, with a mask over the vocabulary, and of no tokens at all."""
    batch, model = packed(case), wrapped_model(case)
    group = parallel_state.get_tensor_model_parallel_group()
    tokens = batch.call["input_ids"][0]
    keep = torch.rand(len(tokens), case.vocab // 2, generator=torch.Generator().manual_seed(group.rank())) > 0.5

    def run(function: Any, rows: slice, **options: Any) -> dict[str, Tensor]:
        output = model(**batch.call)
        log_probs, entropy = function(output.squeeze(0)[rows], tokens[rows], group, with_entropy=True, **options)
        return trained_on(model, output, {"log_probs": [log_probs.flatten()], "entropy": [entropy]})

    with loaded(checkout, "slime", "slime.utils.ppo_utils") as theirs:
        for rows, options in (
            (slice(None), {"log_prob_keep_mask": keep}),
            (slice(None), {"log_prob_keep_mask": keep, "with_entropy_grad": False, "chunk_size": 4}),
            (slice(2, 9), {}),
            (slice(0), {}),
        ):
            expected = run(theirs.calculate_log_probs_and_entropy, rows, **options)
            with attach(model, DeferredHead()):
                assert_agree(run(calculate_log_probs_and_entropy, rows, **options), expected)
            real = run(calculate_log_probs_and_entropy, rows, **options)  # not attached: slime's own function
            assert all(torch.equal(real[name], value) for name, value in expected.items())
