"""One training step of a GPTModel of about one billion parameters, three ways to log-probs and entropy, on one GPU.

    python benchmarks/train_step.py [--verl DIR] [--tokens 16384] [--json FILE]

"default": the model's own logits, log-softmax in float32. "veRL's patch": the forward that veRL binds over
GPTModel.forward on Megatron Core before 0.18, called here without binding it (DIR: a checkout or an unpacked wheel).
"our hook": `LogProbsAndEntropy` as `output_processor`. All three train the same model on the same tokens with the
same loss; a step is forward, backward and a fused AdamW. Times by CUDA events, median of the steps.
"""

import argparse
import importlib.metadata
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from checkouts import import_from, stand_in, verl_kernel
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor

from mcore_unpatch.compat import LogProbsAndEntropy

VOCAB = 151_936
Way = Callable[[Any, Tensor, Tensor], tuple[Tensor, Tensor]]


class FlashAttention(torch.nn.Module):
    """Causal attention by torch's fused kernel: the local spec's own builds every attention matrix."""

    def __init__(self, **_: Any) -> None:
        super().__init__()

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **__: Any) -> Tensor:
        """`[s, b, heads, d]` to `[s, b, heads * d]`."""
        q, k, v = (x.permute(1, 2, 0, 3) for x in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.permute(2, 0, 1, 3).flatten(2)


def build_model(layers: int = 16, width: int = 2048, vocab: int = VOCAB, tokens: int = 16_384) -> Any:
    """Tied embeddings, so that the head's weight is used twice as in small models of this size."""
    config = TransformerConfig(
        num_layers=layers,
        hidden_size=width,
        num_attention_heads=16,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bf16=True,
        params_dtype=torch.bfloat16,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        persist_layer_norm=False,
    )
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = FlashAttention
    return GPTModel(
        config, spec, vocab, tokens, position_embedding_type="rope", share_embeddings_and_output_weights=True
    )


def default(model: Any, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, then their log-softmax."""
    log_p = model(ids, _positions(ids), None).float().log_softmax(-1)
    return log_p.gather(-1, labels[..., None]).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


def our_hook(model: Any, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The official hook."""
    out = model(ids, _positions(ids), None, labels=labels, output_processor=LogProbsAndEntropy())
    return out.log_probs, out.entropy


def verl_patch(checkout: Path | None) -> Way:
    """veRL's forward; of what its file imports, stand-ins for what this call does not reach."""
    verl_kernel(checkout)
    unused = dict.fromkeys(("build_vlm_attn_mask_thd", "preprocess_packed_seqs", "preprocess_thd_engine"))
    unused |= dict.fromkeys(("postprocess_packed_seqs_for_dict_output", "postprocess_thd_engine"))
    stand_in("verl.models.mcore.util", **unused)
    stand_in("verl.utils.megatron_utils", unwrap_model=lambda model: model)
    stand_in("verl.utils.model", CausalLMOutputForPPO=SimpleNamespace)
    folders = ["verl", "verl.utils", "verl.models", "verl.models.mcore"]
    module = import_from(checkout, "verl.models.mcore.model_forward_fused", folders)

    def way(model: Any, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        out = module._fused_GPTModel_forward(model, ids, _positions(ids), None, labels=labels, temperature=1.0)
        return out.log_probs.view_as(labels), out.entropy.view_as(labels)

    return way


def _positions(ids: Tensor) -> Tensor:
    return torch.arange(ids.shape[1], device=ids.device)[None]


def loss_of(way: Way, model: Any, ids: Tensor, labels: Tensor) -> Tensor:
    """A policy-gradient loss with an entropy bonus."""
    logprobs, entropy = way(model, ids, labels)
    return -(logprobs + 0.01 * entropy).mean()


def measure(way: Way, model: Any, tokens: int, steps: int) -> dict[str, float]:
    """Times of a step, and the peak of memory beyond parameters and optimizer state."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)  # the weights stay the same for every way
    draw = torch.Generator("cuda").manual_seed(0)
    times, losses = [], []
    for step in range(steps + 1):
        ids = torch.randint(0, VOCAB, (1, tokens), device="cuda", generator=draw)
        labels = ids.roll(-1, 1)
        optimizer.zero_grad(set_to_none=True)
        if step == 1:
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        loss = loss_of(way, model, ids, labels)
        torch.autograd.backward(loss)
        optimizer.step()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
        losses.append(float(loss))
    gib = (torch.cuda.max_memory_allocated() - held) / 2**30
    times = times[1:]
    return {
        "ms": statistics.median(times),
        "fastest": min(times),
        "slowest": max(times),
        "gib": gib,
        "loss": losses[-1],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verl", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tokens", type=int, default=16_384)
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    parallel_state.initialize_model_parallel()
    model_parallel_cuda_manual_seed(0)
    model = build_model(tokens=options.tokens).cuda().bfloat16()  # the norms too, as Megatron's Float16Module does
    parameters = sum(parameter.numel() for parameter in model.parameters())
    release = importlib.metadata.version("megatron-core")
    print(f"{parameters / 1e9:.2f} billion parameters, {options.tokens} tokens, megatron-core {release}, bf16")
    ways: dict[str, Callable[[], Way]] = {
        "default": lambda: default,
        "veRL's patch": lambda: verl_patch(options.verl),
        "our hook": lambda: our_hook,
    }
    rows: dict[str, Any] = {"parameters": parameters, "tokens": options.tokens, "megatron-core": release}
    for name, make in ways.items():
        try:
            rows[name] = row = measure(make(), model, options.tokens, options.steps)
        except (ImportError, AttributeError, torch.OutOfMemoryError) as error:
            rows[name] = {"failed": f"{type(error).__name__}: {str(error)[:200]}"}
            print(f"{name:14} {rows[name]['failed']}")
        else:
            spread = f"({row['fastest']:.1f}-{row['slowest']:.1f})"
            print(
                f"{name:14} {row['ms']:8.1f} ms {spread}  peak {row['gib']:.2f} GiB  loss {row['loss']:.5f}", flush=True
            )
        torch.cuda.empty_cache()
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
