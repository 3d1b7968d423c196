"""How far log-probs of the same hidden states and weights lie apart, by how the head is computed.

`python benchmarks/precision.py [--tokens 256 --hidden 2048 --vocab 32000]`: the error of each way against float64, of
the same bf16 hidden states and bf16 weight, as a table in Markdown. Any machine; the sizes hardly depend on it.
"""

import argparse

import torch
from torch import Tensor

from mcore_unpatch.compat import LogprobOptions, linear_logprob, vocab_pass


def pick(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.log_softmax(-1).gather(-1, labels[:, None]).squeeze(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("tokens", 256), ("hidden", 2048), ("vocab", 32_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    sizes = parser.parse_args()
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(sizes.tokens, sizes.hidden, generator=draw).bfloat16()
    weight = (torch.randn(sizes.vocab, sizes.hidden, generator=draw) * 3 / sizes.hidden**0.5).bfloat16()
    exact = hidden.double() @ weight.double().t()
    labels = torch.multinomial(exact.softmax(-1), 1, generator=draw).squeeze(-1)  # what such a model would sample
    rounded = exact.float().bfloat16()  # a bf16 product: added up in fp32, stored in 16 bits
    moved = (hidden.float() * (1 + torch.randn(hidden.shape, generator=draw) * 2.0**-9)).bfloat16()

    def ours(h: Tensor, w: Tensor, rows: slice = slice(None)) -> Tensor:
        return linear_logprob(h[rows], w, labels[rows], options=LogprobOptions(backend="torch")).logprobs

    alone = torch.cat([ours(hidden, weight, slice(row, row + 1)) for row in range(8)])
    kept = (exact >= exact.topk(50).values[:, -1:]).scatter(1, labels[:, None], True)
    sampled = exact.where(kept, -torch.inf).topk(51)
    ids = sampled.indices.where(sampled.values > -torch.inf, -1)
    out = vocab_pass(hidden, weight, labels, token_ids=ids, backend="torch")
    assert out.logprobs is not None
    assert out.token_logprobs is not None
    replayed = out.logprobs - out.token_logprobs.masked_fill(ids < 0, -torch.inf).logsumexp(-1)
    truth, hot = pick(exact, labels), pick(exact / 0.7, labels)
    restricted = pick(exact.masked_fill(~kept, -torch.inf), labels)
    rows = {
        "this operator, bf16 weight": (ours(hidden, weight), truth),
        "this operator, fp32 copy of the weight": (ours(hidden.float(), weight.float()), truth),
        "this operator, the row alone and in the batch": (alone, ours(hidden, weight)[:8]),
        "fp32 logits (`logit_dtype=torch.float32`)": (pick(exact.float(), labels), truth),
        "bf16 logits, log-softmax in fp32 (Megatron's default; a bf16 head)": (pick(rounded.float(), labels), truth),
        "bf16 logits divided by a temperature of 0.7 in bf16": (pick((rounded / 0.7).float(), labels), hot),
        "bf16 logits, log-softmax in bf16": (pick(rounded, labels), truth),
        "hidden states that differ by a rounding to bf16": (ours(moved, weight), truth),
        "sampled from the 50 likeliest tokens, scored over all": (truth, restricted),
        "the same, scored with `token_ids`": (replayed, restricted),
    }
    print(f"{sizes.tokens} tokens, hidden size {sizes.hidden}, vocabulary {sizes.vocab}, torch {torch.__version__}\n")
    print("| difference in log-prob | mean | largest |\n|---|---|---|")
    for name, (found, true) in rows.items():
        error = (found.double() - true.double()).abs()
        print(f"| {name} | {error.mean().item():.1e} | {error.max().item():.1e} |")


if __name__ == "__main__":
    main()
