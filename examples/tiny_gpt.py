"""A tiny Megatron GPTModel on a CPU, first to its logits, then with `LogProbsAndEntropy` attached: the same numbers.

python examples/tiny_gpt.py                 needs `pip install "mcore-unpatch[compat]"`, and no GPU

Nothing is stubbed. Learned positions (rotary ones ask for a CUDA device) and a small attention of torch itself (Megatron's
local one takes its memory from CUDA) are choices of the configuration and of the layer spec.
"""

import tempfile

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer.transformer_config import TransformerConfig

from mcore_unpatch.compat import HookContext, LogProbsAndEntropy, attach

BATCH, LENGTH, VOCAB = 2, 32, 1_000


class Attention(torch.nn.Module):
    """Causal attention for `[s, b, heads, d]`, where Megatron's layer spec expects its core attention."""

    def __init__(self, config, **_):
        super().__init__()

    def forward(self, query, key, value, attention_mask, **_):
        heads_first = (tensor.permute(1, 2, 0, 3) for tensor in (query, key, value))
        out = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True)
        return out.permute(2, 0, 1, 3).flatten(2)


def tiny_model():
    """Two layers of 64 with random weights."""
    off = ("gradient_accumulation_fusion", "masked_softmax_fusion", "bias_dropout_fusion", "bias_activation_fusion")
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        hidden_dropout=0.0,
        use_cpu_initialization=True,
        persist_layer_norm=False,
        **dict.fromkeys(off, False),
    )
    spec = get_gpt_layer_local_spec()
    spec.submodules.self_attention.submodules.core_attention = Attention
    return GPTModel(config, spec, VOCAB, LENGTH, position_embedding_type="learned_absolute")


def main():
    torch.manual_seed(0)
    model = tiny_model()
    ids, labels = torch.randint(0, VOCAB, (2, BATCH, LENGTH))
    call = {"input_ids": ids, "position_ids": torch.arange(LENGTH).expand_as(ids), "attention_mask": None}

    logits = model(**call)  # [b, s, vocab]
    log_p = logits.log_softmax(-1)
    expected = log_p.gather(-1, labels[..., None]).squeeze(-1)
    with attach(model, LogProbsAndEntropy(), HookContext(labels=labels)):
        out = model(**call)  # the same call: no logits

    out.log_probs.mean().backward()
    print(f"logits {list(logits.shape)} were {logits.nbytes / 2**20:.2f} MiB; log-probs {list(out.log_probs.shape)}")
    print(f"largest difference of a log-prob: {(out.log_probs - expected).abs().max().item():.1e}")
    print(f"parameters with a gradient: {sum(p.grad is not None for p in model.parameters())}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
        parallel_state.initialize_model_parallel()
        main()
        torch.distributed.destroy_process_group()
