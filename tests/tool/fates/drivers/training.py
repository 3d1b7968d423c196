"""Cases that a schedule, an optimizer's scheduler or the end of a step comes to."""

import importlib
from types import SimpleNamespace
from typing import Any

import torch
from effects import beside_plain
from models import batch, config_of, gpt, start_world


def _one_step(**changes: Any) -> torch.Tensor:
    """A forward and backward of Megatron's own schedule without pipeline."""
    from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining

    model = gpt(config_of(**changes))

    def forward_step(data: Any, model: Any) -> Any:
        return model(**next(data)), lambda output: (output.mean(), {"loss": output.mean().detach()})

    forward_backward_no_pipelining(
        forward_step_func=forward_step,
        data_iterator=iter([batch()]),
        model=model,
        num_microbatches=1,
        seq_length=8,
        micro_batch_size=2,
    )
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def backward_with_model_type(stage: Any) -> Any:
    return beside_plain(stage, _one_step)


def backward_whatever_comes(stage: Any) -> Any:
    return beside_plain(stage, _one_step)


def scaled_mtp_loss(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.transformer.multi_token_prediction import MTPLossAutoScaler

        _one_step(mtp_num_layers=1)
        return MTPLossAutoScaler.main_loss_backward_scale

    return beside_plain(stage, run)


def _scheduled() -> Any:
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    groups = [
        {"lr": 0.0, "lr_mult": 0.5, "wd_mult": 1.0, "weight_decay": 0.0, "max_lr": 0.4, "min_lr": 0.0, "params": []},
        {"lr": 0.0, "lr_mult": 1.0, "wd_mult": 1.0, "weight_decay": 0.0, "max_lr": 1e-4, "min_lr": 0.0, "params": []},
    ]
    scheduler = OptimizerParamScheduler(
        optimizer=SimpleNamespace(param_groups=groups),
        init_lr=0.0,
        max_lr=0.4,
        min_lr=0.0,
        lr_warmup_steps=0,
        lr_decay_steps=100,
        lr_decay_style="linear",
        start_wd=0.1,
        end_wd=0.1,
        wd_incr_steps=100,
        wd_incr_style="constant",
        use_checkpoint_opt_param_scheduler=False,
    )
    scheduler.step(10)
    return [(group["lr"], group["weight_decay"]) for group in groups]


def copy_scheduler_step(stage: Any) -> Any:
    return beside_plain(stage, _scheduled)


def learning_rate_floor(stage: Any) -> Any:
    return beside_plain(stage, _scheduled)


def layernorm_grads_untouched(stage: Any) -> Any:
    def run() -> Any:
        finalizing = importlib.import_module("megatron.core.distributed.finalize_model_grads")
        start_world()

        class Chunk(torch.nn.Linear):
            config = config_of()
            ddp_config = SimpleNamespace(use_custom_fsdp=False, use_megatron_fsdp=False)
            share_embeddings_and_output_weights = False
            norms_left_alone = False

            def finish_grad_sync(self, *_: Any, **__: Any) -> None:
                pass

        chunk = Chunk(2, 2)
        finalizing.finalize_model_grads([chunk])
        return chunk.norms_left_alone

    return beside_plain(stage, run)


def ddp_settings_of_ours(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

        model = gpt()
        wrapped = DistributedDataParallel(model.config, DistributedDataParallelConfig(), model)
        return wrapped.ddp_config.grad_reduce_in_fp32

    return beside_plain(stage, run)


def backward_of_one_kind(stage: Any) -> Any:
    return beside_plain(stage, _one_step)


def finalize_two_arguments(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core import distributed

        def finalize(*args: Any, **kwargs: Any) -> Any:
            """Megatron's own wants buffers that only its DistributedDataParallel has; ours is handed everything."""
            return None if stage.module is None else distributed.finalize_model_grads(*args, **kwargs)

        return _one_step(finalize_model_grads_func=finalize)

    return beside_plain(stage, run)


def constant_decay(stage: Any) -> Any:
    return beside_plain(stage, _scheduled)


def decorated_replacements(stage: Any) -> Any:
    return beside_plain(stage, _scheduled)


def expert_groups_of_ours(stage: Any) -> Any:
    def run() -> Any:
        from megatron.core.process_groups_config import ProcessGroupCollection

        model = gpt()
        model.ddp_config = SimpleNamespace(num_distributed_optimizer_instances=1)
        groups = ProcessGroupCollection.setup_process_groups_for_optimizer(None, [model], use_gloo_process_groups=False)
        return len(groups)

    return beside_plain(stage, run)
