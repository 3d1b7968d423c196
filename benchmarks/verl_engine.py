"""Optimizer steps of veRL's own Megatron engine before and after `unpatch migrate --unsafe-fixes`, on a CPU.

    python benchmarks/verl_engine.py VERL [--steps 20] [--ways logits fused mtp] [--megatron FOLDER]

VERL is the folder of an unpacked veRL wheel, or a checkout. Its requirements (tensordict, transformers, ray, ...),
megatron-core and this package must be importable; `--megatron` names a folder with another megatron-core.

All of veRL's engine runs as released: `MegatronEngineWithLMHead.initialize`, its patches, Megatron's DDP and
distributed optimizer as it builds them, packing, micro-batches, `sft_loss`, `train_batch`. Two things cannot run
without a GPU and have stand-ins: the bridge that builds and loads the model (of Transformer Engine's layers; here of
Megatron's local ones, with random weights), and veRL's fused kernel (in Triton; here log-softmax of logits, so that its
time and memory say nothing).
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

HERE = Path(__file__).resolve()
COMPAT = HERE.parents[1] / "tests" / "compat"
WAYS = ("logits", "fused", "mtp")
BATCH, PROMPT, RESPONSE, VOCAB, HIDDEN = 8, 64, 192, 8192, 64
SHOWN = (1, 2, 5, 10, 15, 20)


def model_folder(root: Path, mtp: bool) -> str:
    """What veRL reads of a model from the disk: its configuration and a tokenizer."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": HIDDEN}
    if mtp:
        config["num_nextn_predict_layers"] = 1
    (root / "config.json").write_text(json.dumps(config))
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>").save_pretrained(root)
    return str(root)


def bridge(mtp: bool) -> type:
    """Stands for mbridge's `AutoBridge`: the calls that veRL makes, and a small model of Megatron's local layers."""
    import torch
    from harness.models import Case, build_config, build_model
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.transformer.module import Float16Module

    case = Case(dtype=torch.bfloat16, hidden=HIDDEN, vocab=VOCAB, sequence=PROMPT + RESPONSE, mtp=int(mtp))

    class Bridge:
        def __init__(self) -> None:
            self.config = build_config(case)

        @classmethod
        def from_config(cls, hf_config: Any, dtype: Any) -> "Bridge":
            return cls()

        def set_extra_args(self, **options: Any) -> None:
            """What veRL overrides is for Transformer Engine's layers."""

        def get_model(self, *, ddp_config: dict[str, Any], **_: Any) -> list[Any]:
            wrapped = Float16Module(self.config, build_model(case))
            return [DistributedDataParallel(self.config, DistributedDataParallelConfig(**ddp_config), wrapped)]

        def load_weights(self, module: Any, path: str) -> None:
            """They are random, and the same in every run."""

    return Bridge


def batch(step: int) -> Any:
    """Sequences of different lengths as veRL's trainer hands them to the engine; a word says what mostly follows it."""
    import torch
    from verl import DataProto
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import left_right_2_no_padding

    generator = torch.Generator().manual_seed(step)
    columns = [torch.randint(0, 64, (BATCH,), generator=generator)]
    for _ in range(PROMPT + RESPONSE - 1):
        surprise = torch.randint(0, 64, (BATCH,), generator=generator)
        columns.append(torch.where(surprise < 8, surprise, (5 * columns[-1] + 3) % 64))
    prompts = torch.randint(PROMPT // 3, PROMPT + 1, (BATCH, 1), generator=generator)
    responses = torch.randint(RESPONSE // 3, RESPONSE + 1, (BATCH, 1), generator=generator)
    place = torch.arange(PROMPT + RESPONSE)
    mask = ((place >= PROMPT - prompts) & (place < PROMPT + responses)).long()
    ids = torch.stack(columns, 1) * mask
    data = {
        "input_ids": ids,
        "prompts": ids[:, :PROMPT],
        "responses": ids[:, PROMPT:],
        "attention_mask": mask,
        "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
        "response_mask": mask[:, PROMPT:],
    }
    packed = left_right_2_no_padding(DataProto.from_single_dict(data, meta_info={"temperature": 0.9}).to_tensordict())
    counts = (place >= PROMPT).long().expand_as(mask)[mask != 0]
    packed["loss_mask"] = torch.nested.nested_tensor_from_jagged(counts, packed["input_ids"].offsets())
    tu.assign_non_tensor(packed, use_dynamic_bsz=False, micro_batch_size_per_gpu=BATCH // 2, calculate_entropy=True)
    return packed


def loss_of(model_output: Any, data: Any, dp_group: Any = None) -> tuple[Any, dict[str, Any]]:
    """veRL's loss of the responses, and a part of the entropy, so that its gradient counts too."""
    from verl.workers.utils.losses import sft_loss

    loss, metrics = sft_loss(None, model_output, data)
    entropy = (model_output["entropy"].values() * data["loss_mask"].values()).sum() / data["batch_num_tokens"]
    return loss - 0.01 * entropy, metrics


def engine_of(folder: str, way: str) -> Any:
    from verl.trainer.config import CheckpointConfig
    from verl.workers.config import HFModelConfig, McoreEngineConfig, McoreOptimizerConfig
    from verl.workers.config.model import MtpConfig
    from verl.workers.engine.megatron.transformer_impl import MegatronEngineWithLMHead

    mtp = MtpConfig(enable=True, enable_train=True, detach_encoder=True) if way == "mtp" else MtpConfig()
    engine = MegatronEngineWithLMHead(
        HFModelConfig(path=folder, use_remove_padding=True, mtp=mtp),
        McoreEngineConfig(vanilla_mbridge=True, use_fused_kernels=way == "fused", sequence_parallel=False),
        McoreOptimizerConfig(lr=1e-3, lr_decay_steps=100, clip_grad=1.0, lr_warmup_steps=0),
        CheckpointConfig(),
    )
    engine.initialize()
    return engine


def train(way: str, steps: int) -> dict[str, Any]:
    """One veRL, the one on the path: the loss and gradient norm of each step, seconds, and the peak of memory."""
    sys.path.insert(0, str(COMPAT))
    import torch
    from harness.cpu import on_the_cpu

    torch.set_num_threads(1)
    torch.compiler.set_stance("force_eager")
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(on_the_cpu())
        stack.enter_context(mock.patch("torch.cuda.mem_get_info", return_value=(0, 0)))
        stack.enter_context(mock.patch("torch.cuda.empty_cache"))
        torch.distributed.init_process_group("gloo", init_method=f"file://{root / 'store'}", rank=0, world_size=1)
        stand_in("verl.models.mcore.mbridge", AutoBridge=bridge(way == "mtp"), make_value_model=0, freeze_moe_router=0)
        if way == "fused":
            stand_in("verl.utils.kernel.linear_cross_entropy", linear_cross_entropy=linear_cross_entropy)
        engine = engine_of(model_folder(root, way == "mtp"), way)
        rows: list[tuple[float, float]] = []
        seconds = []

        def step() -> None:
            data, start = batch(len(rows)), time.perf_counter()
            out = engine.train_batch(data, loss_of)
            engine.lr_scheduler_step()
            seconds.append(time.perf_counter() - start)
            rows.append((sum(out["loss"]), float(out["metrics"]["grad_norm"])))

        with engine.train_mode(disable_auto_offload=True):
            for _ in range(steps):
                step()
            middle = statistics.median(seconds)
            peak = peak_of(step)
        return {"rows": rows[:steps], "seconds": middle, "peak": peak}


def stand_in(name: str, **values: Any) -> None:
    module = ModuleType(name)
    vars(module).update(values)
    sys.modules[name] = module


def linear_cross_entropy(
    hidden: Any, weight: Any, labels: Any, temperature: float, reduction: str, group: Any
) -> tuple[Any, Any]:
    """What veRL's kernel computes: products of bf16 summed in fp32."""
    log_softmax = (hidden.flatten(0, -2).float() @ weight.float().T / temperature).log_softmax(-1)
    log_probs = log_softmax.gather(-1, labels.reshape(-1, 1)).squeeze(-1)
    return log_probs, -(log_softmax.exp() * log_softmax).sum(-1)


def peak_of(step: Callable[[], Any]) -> int:
    """The bytes that torch's allocator held at the worst moment of a step, beyond those held before."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as run:
        step()
    held = peak = 0
    events = [event for event in run.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def migrated(verl: Path, folder: Path) -> Path:
    """A copy of veRL, migrated as a user would: in a git repository, by the command."""
    after = folder / "after"
    shutil.copytree(verl, after)
    git = ["git", "-c", "user.name=benchmark", "-c", "user.email=", "-C", str(after)]
    for command in (["init", "-q"], ["add", "-A", "-f", "."], ["commit", "-q", "--no-verify", "-m", "before"]):
        subprocess.run([*git, *command], check=True, stdout=subprocess.DEVNULL)
    run = subprocess.run(
        [sys.executable, "-P", "-m", "mcore_unpatch", "migrate", "--unsafe-fixes", str(after)],
        check=False,
        capture_output=True,
        text=True,
    )
    if run.returncode:
        raise SystemExit(run.stdout + run.stderr)
    return after


def in_a_process(verl: Path, way: str, options: argparse.Namespace) -> dict[str, Any] | str:
    """The results of one way with one veRL, or its error."""
    path = [str(verl), *([str(options.megatron)] if options.megatron else []), os.environ.get("PYTHONPATH", "")]
    command = [sys.executable, str(HERE), str(verl), "--child", way, "--steps", str(options.steps)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "CUDA_VISIBLE_DEVICES": ""}
    run = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    if run.returncode:
        return run.stderr.strip().splitlines()[-1]
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result


def report(way: str, before: dict[str, Any] | str, after: dict[str, Any] | str) -> None:
    print(f"\n## {way}")
    for name, result in (("before", before), ("after", after)):
        if isinstance(result, str):
            print(f"{name}: {result}")
    if isinstance(before, str) or isinstance(after, str):
        return
    pairs = list(zip(before["rows"], after["rows"], strict=True))
    print("| step | loss before | after | gradient norm before | after |\n|---|---|---|---|---|")
    for step in (number for number in SHOWN if number <= len(pairs)):
        (loss, norm), (new_loss, new_norm) = pairs[step - 1]
        print(f"| {step} | {loss:.6f} | {new_loss:.6f} | {norm:.5f} | {new_norm:.5f} |")
    losses = max(abs(one[0] - other[0]) for one, other in pairs)
    norms = max(abs(one[1] - other[1]) / one[1] for one, other in pairs)
    print(f"largest difference of a loss: {losses:.1e}, of a gradient norm: {norms:.1e} of it")
    for name, result in (("before", before), ("after", after)):
        print(f"{name}: {result['seconds']:.3f} s a step (median), peak {result['peak'] / 2**20:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("verl", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--megatron", type=Path)
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train(options.child, options.steps)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        after = migrated(options.verl, Path(temporary))
        for way in options.ways:
            report(way, *(in_a_process(verl, way, options) for verl in (options.verl.resolve(), after)))


if __name__ == "__main__":
    main()
