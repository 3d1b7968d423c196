"""Cases whose target is called as its caller in Megatron calls it: the caller itself needs a GPU or a whole trainer."""

import tempfile
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from effects import beside_plain
from models import config_of, start_world


def time_post_process(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.models.gpt.fine_grained_callables import PostProcessNode

        model = SimpleNamespace(
            decoder=SimpleNamespace(final_layernorm=None, layers=[]),
            config=SimpleNamespace(mtp_num_layers=None),
            _postprocess=lambda **values: values["hidden_states"],
        )
        names = "labels loss_mask attention_mask padding_mask packed_seq_params sequence_len_offset input_ids"
        names += " position_ids rotary_pos_emb rotary_pos_cos rotary_pos_sin decoder_input inference_context"
        names += " runtime_gather_output extra_block_kwargs inference_params output_processor output_processor_context"
        state = SimpleNamespace(**dict.fromkeys(names.split()))
        node = SimpleNamespace(gpt_model=model, chunk_state=state)
        # as megatron/core/pipeline_parallel/utils.py calls it in ScheduleNode._forward
        return PostProcessNode.forward_impl(node, torch.ones(3))

    if stage.release >= "0.19":
        stage.load()
    return beside_plain(stage, run)


def floor_learning_rate(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core import optimizer

        group = {"is_decoupled_lr": False, "lr_mult": 1.0, "wd_mult": 1.0, "params": []}
        # as megatron/core/optimizer/__init__.py calls it in _get_param_groups
        return optimizer._update_min_and_max_lr_in_param_groups(
            [group], lr=1e-4, min_lr=0.0, decoupled_lr=None, decoupled_min_lr=None
        )

    if stage.release >= "0.16":
        stage.load()
        stage.install()
    return beside_plain(stage, run)


def skip_frozen_grads_in_norm(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.optimizer.optimizer import MegatronOptimizer

        start_world()
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.grad = torch.ones(2)
        settings = SimpleNamespace(
            use_precision_aware_optimizer_no_fp8_or_ds_fp8=False, use_precision_aware_optimizer=False
        )
        optimizer = SimpleNamespace(
            get_parameters=lambda: [parameter], config=settings, tp_group=None, is_stub_optimizer=False
        )
        # as megatron/core/optimizer/optimizer.py calls it in clip_grad_norm
        return MegatronOptimizer.get_main_grads_for_grad_norm(optimizer)

    if stage.release >= "0.19":
        stage.load()
    return beside_plain(stage, run)


def check_thd_lengths(stage: Any) -> Any:
    def run() -> Any:
        import megatron.core.utils as utils

        start_world()
        batch = {"tokens": torch.arange(8)[None]}
        cut = torch.tensor([[0, 4, 8]], dtype=torch.int32)
        # no caller in megatron.core: trainers cut their batches with it
        return utils.get_thd_batch_on_this_cp_rank(batch, cut, cut, torch.tensor([4]))[0]

    if stage.release >= "0.18":
        stage.load()
    return beside_plain(stage, run)


def count_received(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.pipeline_parallel import p2p_communication

        start_world()
        # as megatron/core/pipeline_parallel/schedules.py calls it in recv_forward, on the first stage
        is_first_stage = (True,) if stage.release >= "0.13" else ()
        return p2p_communication.recv_forward((1, 1, 1), config_of(), *is_first_stage)

    if stage.release >= "0.14":
        stage.load()
        stage.install()
    return beside_plain(stage, run)


def save_by_position(stage: Any) -> Any:
    def validated() -> Any:
        """Whether Megatron checked that every part of every tensor is written once."""
        from megatron.core import dist_checkpointing
        from megatron.core.dist_checkpointing import state_dict_utils

        start_world()
        tensor = dist_checkpointing.ShardedTensor.from_rank_offsets("weight", torch.ones(2), replica_id=0)
        with (
            tempfile.TemporaryDirectory() as folder,
            mock.patch.object(state_dict_utils, "validate_sharding_integrity") as check,
        ):
            dist_checkpointing.save({"weight": tensor}, folder)
        return check.called

    return beside_plain(stage, validated)


def sampling_as_text(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.inference.sampling_params import SamplingParams

        # as megatron/core/inference/inference_client.py calls it before it sends a request
        return SamplingParams().serializable()

    if stage.release >= "0.16":
        stage.load()
    return beside_plain(stage, run)


def pattern_at_the_old_path(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.ssm import mamba_hybrid_layer_allocation

        try:
            return mamba_hybrid_layer_allocation.get_hybrid_layer_counts("M*_-M")
        except ValueError:
            return None

    return beside_plain(stage, run)
