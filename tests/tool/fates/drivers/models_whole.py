"""Cases that a forward or a training step of a small GPT model comes to."""

from types import SimpleNamespace
from typing import Any

import torch
from effects import beside_plain
from models import batch, config_of, gpt, gradients_of, keep_known, loss_of, mla_config, moe_config, start_world

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


def _in_four_data_ranks() -> Any:
    start_world(4, num_distributed_optimizer_instances=2)
    return loss_of(gpt())


def loss_per_data_rank(stage: Any) -> Any:
    return beside_plain(stage, _in_four_data_ranks)


def loss_per_data_rank_in_helper(stage: Any) -> Any:
    return beside_plain(stage, _in_four_data_ranks)


def loss_per_named_rank(stage: Any) -> Any:
    return beside_plain(stage, _in_four_data_ranks)


def loss_on_all_gather_group(stage: Any) -> Any:
    return beside_plain(stage, _in_four_data_ranks)


def loss_only_on_first_stage(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core import parallel_state
        from megatron.core.models.gpt.gpt_model import GPTModel

        start_world(2, pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=2)
        parallel_state.set_virtual_pipeline_model_parallel_rank(0)
        model = gpt(**keep_known(GPTModel.__init__, {"vp_stage": 0}))
        parallel_state.set_virtual_pipeline_model_parallel_rank(1)
        return loss_of(model)

    return beside_plain(stage, run)


def halve_mtp_logits(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def rotate_by_position(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(mla_config())))


def mtp_only_where_asked(stage: Any) -> Any:
    return beside_plain(stage, lambda: gpt(config_of(mtp_num_layers=1)).mtp_process)


def doubled_mlp(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def skip_mlp(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def softmax_in_float64(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def norm_of_our_own(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def rotary_half(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def rotate_with_kwargs(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(mla_config())))


def mtp_loss_with_kwargs(stage: Any) -> Any:
    def gradients() -> Any:
        model = gpt(config_of(mtp_num_layers=1))
        model(**{**batch(), "labels": None}).square().sum().backward()
        return [p.grad for p in model.parameters() if p.grad is not None]

    return beside_plain(stage, gradients)


def roll_with_kwargs(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.packed_seq_params import PackedSeqParams
        from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer

        start_world()
        ends = torch.tensor([0, 3, 8], dtype=torch.int32)
        packed = PackedSeqParams(qkv_format="thd", cu_seqlens_q=ends, cu_seqlens_kv=ends)
        layer = SimpleNamespace(cp_group=None, config=config_of())
        values = {
            "input_ids": torch.arange(1, 9)[None],
            "position_ids": torch.arange(8)[None],
            "embedding": lambda input_ids, position_ids: input_ids.float(),
            "hidden_states": torch.ones(8, 1, 4),
            "packed_seq_params": packed,
        }
        embeddings = MultiTokenPredictionLayer._get_embeddings
        return embeddings(layer, **keep_known(embeddings, values))[0]

    return beside_plain(stage, run)


def head_with_kwargs(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def cross_entropy_with_kwargs(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def registry_of_losses(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def table_of_wrappers(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(**RECOMPUTE))))


def table_of_rotations(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def copy_rotate_half(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(rotary_interleaved=True))))


def submodules_of_our_own(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(mtp_num_layers=1))))


def submodules_subclass(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(mtp_num_layers=1))))


def roll_in_the_model(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def roll_in_its_own_module(stage: Any) -> Any:
    def labels_rolled() -> Any:
        """What the loss of the MTP layer is computed from."""
        seen = []
        model = gpt(config_of(mtp_num_layers=1))
        compute = model.compute_language_model_loss
        model.compute_language_model_loss = lambda labels, logits: seen.append(labels) or compute(labels, logits)
        loss_of(model)
        return seen

    return beside_plain(stage, labels_rolled)


def rotation_in_its_own_module(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def flag_on_config(stage: Any) -> Any:
    return beside_plain(stage, lambda: getattr(gpt().config, "use_our_adapter", None))


def property_of_layer(stage: Any) -> Any:
    return beside_plain(stage, lambda: getattr(gpt().decoder.layers[0], "depth", None))


def seeded_init(stage: Any) -> Any:
    return beside_plain(stage, lambda: gpt().decoder.layers[0].mlp.linear_fc1.weight)


def mla_by_its_own_parameters(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(mla_config())))


def halve_queries(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def rename_checkpoint_keys(stage: Any) -> Any:
    def prefixed(plain: Any, patched: Any) -> Any:
        return sorted(patched) == sorted(f"experiment.{key}" for key in plain)

    return beside_plain(stage, lambda: list(gpt().sharded_state_dict()), prefixed)


def attention_through_its_base(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def head_kept_on_the_class(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def original_in_name_only(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def mtp_arguments_that_exist(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def mtp_embeddings_by_signature(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def recompute_count_before_018(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(**RECOMPUTE))))


def tracker_or_nothing(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def clean_tracker_in_training(stage: Any) -> Any:
    def two_steps() -> Any:
        model = gpt(config_of(mtp_num_layers=1))
        return [loss_of(model), loss_of(model)]

    return beside_plain(stage, two_steps)


def layers_outside_the_encoder(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def no_extended_tensor_parallel(stage: Any) -> Any:
    return beside_plain(stage, lambda: config_of().hidden_size)


def fewer_streaming_processors(stage: Any) -> Any:
    return beside_plain(stage, lambda: config_of().moe_deepep_num_sms)


def loss_in_its_own_module(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def vocab_range_logged(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def groups_noted(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def copy_gated_mlp(stage: Any) -> Any:
    gated = {"gated_linear_unit": True, "activation_func": torch.nn.functional.silu, "glu_linear_offset": 1.0}
    return beside_plain(stage, lambda: loss_of(gpt(config_of(**gated))))


def copy_bias_dropout(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(add_bias_linear=True))))


def softmax_without_offset(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt(config_of(softmax_type="off-by-one"))))


def mlp_with_kwargs(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def mlp_spec_of_ours(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def mlp_subclass(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def preprocess_first_five(stage: Any) -> Any:
    return beside_plain(stage, lambda: loss_of(gpt()))


def detach_third_value(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def detach_next_to_last_value(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1))))


def replaced_mtp_recompute(stage: Any) -> Any:
    return beside_plain(stage, lambda: gradients_of(gpt(config_of(mtp_num_layers=1, **RECOMPUTE))))
