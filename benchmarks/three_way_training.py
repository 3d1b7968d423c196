"""Twenty AdamW steps of a real GPTModel on the CPU: Megatron's default logits, the downstream's own code, and the shim.

    PYTHONPATH=tests/compat python benchmarks/three_way_training.py --nemo-rl CHECKOUT --skyrl CHECKOUT

Every path starts from the same weights and sees the same tokens. The loss is a clipped policy ratio to the log-probs of
the start, on masked tokens. Prints a markdown table for each model.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from downstream.checkouts import loaded, nemo_rl_patch
from harness import run_on_ranks
from harness.models import Case, batch_of, build_model, start_world
from harness.pool import shut_down
from megatron.core import parallel_state
from torch import Tensor

STEPS, CHUNK = 20, 16
SHOWN = (1, 2, 5, 10, 15, 20)
SIZE = {"vocab": 512, "hidden": 64, "sequence": 64, "batch": 4}
CASES = [Case(**SIZE), Case(**SIZE, tied=True), Case(**SIZE, tp=2, sequence_parallel=True)]
FLAG = {"return_logprobs_for_linear_ce_fusion": True}
LogProbs = Callable[[Any, dict[str, Any]], Tensor]


def from_default_logits(model: Any, call: dict[str, Any]) -> Tensor:
    """Megatron's own output stage: minus the loss of the next token."""
    return -model(**{**call, "labels": call["input_ids"].roll(-1, 1)})[:, :-1]


def from_the_flag(model: Any, call: dict[str, Any]) -> Tensor:
    return model(**call, **FLAG)


def from_nemo_rl_shim(model: Any, call: dict[str, Any]) -> Tensor:
    from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs

    return model(**call, **linear_ce_fusion_kwargs(model, chunk_size=CHUNK))


def by_skyrl(utils: Any, head: Any) -> LogProbs:
    """SkyRL's two steps, with its own functions or the shim's, which have the same names."""

    def log_probs(model: Any, call: dict[str, Any]) -> Tensor:
        context: dict[str, Any] = {}
        inputs = {**call, "labels": None, "output_processor": head.fused_lm_head_output_processor}
        hidden = head.call_model_with_fused_lm_head(model, **inputs, output_processor_context=context)
        weight, group = context["lm_head_weight"], parallel_state.get_tensor_model_parallel_group()
        start = group.rank() * len(weight)
        return utils.from_parallel_hidden_to_logprobs(
            hidden, weight, call["input_ids"], start, start + len(weight), group, chunk_size=CHUNK
        )

    return log_probs


def train(case: Case, log_probs_of: LogProbs) -> list[float]:
    """The loss of each step."""
    start_world(case)
    model = build_model(case)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batches = [batch_of(case, seed) for seed in range(4)]
    calls = [{name: batch[name] for name in ("input_ids", "position_ids")} for batch in batches]
    calls = [{**call, "attention_mask": None, "labels": call["input_ids"]} for call in calls]
    with torch.no_grad():
        old = [log_probs_of(model, call) for call in calls]
    losses = []
    for step in range(STEPS):
        number = step % len(calls)
        optimizer.zero_grad()
        log_probs, mask = log_probs_of(model, calls[number]), batches[number]["loss_mask"][:, 1:]
        advantage = torch.randn(case.batch, 1, generator=torch.Generator().manual_seed(number)) + 1
        ratio = (log_probs - old[number]).exp()
        objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage) + 0.05 * log_probs
        loss = -(objective * mask).sum() / mask.sum()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def default(case: Case) -> list[float]:
    return train(case, from_default_logits)


def nemo_rl(case: Case, checkout: str) -> list[float]:
    with nemo_rl_patch(checkout, CHUNK):
        return train(case, from_the_flag)


def nemo_rl_shim(case: Case) -> list[float]:
    return train(case, from_nemo_rl_shim)


def skyrl(case: Case, checkout: str) -> list[float]:
    package = "skyrl.backends.skyrl_train.distributed.megatron"
    with (
        loaded(checkout, "skyrl", f"{package}.model_utils") as utils,
        loaded(checkout, "skyrl", f"{package}.fused_lm_head") as head,
    ):
        return train(case, by_skyrl(utils, head))


def skyrl_shim(case: Case) -> list[float]:
    from mcore_unpatch.compat import skyrl as shim

    return train(case, by_skyrl(shim, shim))


def table(names: list[str], losses: list[list[float]]) -> str:
    rows = [["step", *names], ["---"] * (len(names) + 1)]
    rows += [[str(step), *(f"{of[step - 1]:.7f}" for of in losses)] for step in SHOWN]
    worst = [max(abs(a - b) for a, b in zip(of, losses[0], strict=True)) for of in losses]
    rows.append(["largest difference from default, 20 steps", *(f"{value:.1e}" for value in worst)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nemo-rl", required=True, help="a checkout of NeMo RL")
    parser.add_argument("--skyrl", required=True, help="SkyRL 0.4.0 or newer, a checkout or an unpacked wheel")
    parser.add_argument("--release", default="0.19.2", help="of megatron-core")
    options = parser.parse_args()
    paths: dict[str, tuple[Any, ...]] = {
        "default": (default,),
        "NeMo RL's patch": (nemo_rl, options.nemo_rl),
        "compat.nemo_rl": (nemo_rl_shim,),
        "SkyRL's own": (skyrl, options.skyrl),
        "compat.skyrl": (skyrl_shim,),
    }
    for case in CASES:
        losses = [run_on_ranks(options.release, case.ranks, path, case, *more)[0] for path, *more in paths.values()]
        print(f"\n{case}\n\n{table(list(paths), losses)}")
    shut_down()


if __name__ == "__main__":
    main()
