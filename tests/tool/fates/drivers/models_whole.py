"""Cases that a forward or a training step of a small GPT model comes to."""

from typing import Any

from effects import beside_plain
from models import batch, config_of, gpt, gradients_of, loss_of, mla_config, moe_config

RECOMPUTE = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}


def log_checkpointed_blocks(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(**RECOMPUTE))))


def log_checkpointed_blocks_if_any(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(**RECOMPUTE))))


def replace_checkpointed_blocks(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(**RECOMPUTE))))


def print_mtp_losses(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(mtp_num_layers=1))))


def mean_loss_to_tracker(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def mean_loss_if_tracker_takes_it(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def mean_loss_before_019(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def cut_thd_in_forward(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def cut_thd_if_importable(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def no_async_allreduce(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def router_logs_to_tracker(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(moe_config())))


def postprocess_through_alias(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def postprocess_through_partial(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def postprocess_through_default(stage: Any) -> Any:
    return beside_plain(stage, lambda: [loss_of(gpt()), len(gradients_of(gpt()))])


def mla_three_values(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(mla_config())))


def mla_all_values(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(mla_config())))


def scale_shared_embedding(stage: Any) -> Any:
    def logits() -> Any:
        model = gpt(share_embeddings_and_output_weights=True)
        return model(**{**batch(), "labels": None})

    return beside_plain(stage, logits)


def detach_mtp_embeddings(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def detach_mtp_embeddings_by_name(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def no_rotary_after_preprocess(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def own_head_016(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def own_head_every_release(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def plain_cross_entropy(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def route_without_padding(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(moe_config())))


def balance_loss_of_our_own(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(moe_config())))
