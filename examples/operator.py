"""`linear_logprob` beside plain logits: the same values and gradients, without `[tokens, vocab]`. CPU, no Megatron.

python examples/operator.py
"""

import torch

from mcore_unpatch.compat import linear_logprob

TOKENS, HIDDEN, VOCAB = 512, 256, 32_000
torch.manual_seed(0)
hidden = torch.randn(TOKENS, HIDDEN, requires_grad=True)
weight = (torch.randn(VOCAB, HIDDEN) / 16).requires_grad_()
labels = torch.randint(0, VOCAB, (TOKENS,))


def from_logits():
    log_p = (hidden @ weight.T / 0.7).log_softmax(-1)
    return log_p.gather(-1, labels[:, None]).squeeze(-1), -(log_p.exp() * log_p).sum(-1)


def from_hidden_states():
    return linear_logprob(hidden, weight, labels, temperature=0.7, entropy=True)


def run(way):
    """Values, gradients, and the MiB that the forward holds for the backward (inputs and weight not counted)."""
    held, hidden.grad, weight.grad = {}, None, None

    def keep(tensor):
        held[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        log_probs, entropy = way()
    (log_probs + 0.01 * entropy).mean().backward()
    given = {tensor.untyped_storage().data_ptr() for tensor in (hidden, weight, labels)}
    mib = sum(size for place, size in held.items() if place not in given) / 2**20
    return {"log-probs": log_probs, "entropy": entropy, "d hidden": hidden.grad, "d weight": weight.grad}, mib


(plain, plain_mib), (ours, ours_mib) = run(from_logits), run(from_hidden_states)
print(f"{TOKENS} tokens, hidden size {HIDDEN}, vocabulary {VOCAB}: norms, and the relative difference")
print(f"{'':18} {'plain logits':>14} {'linear_logprob':>14} {'difference':>12}")
for name in plain:
    difference = (plain[name] - ours[name]).norm() / plain[name].norm()
    print(f"{name:18} {plain[name].norm().item():14.6f} {ours[name].norm().item():14.6f} {difference.item():12.1e}")
print(f"{'held for backward':18} {plain_mib:10.1f} MiB {ours_mib:10.1f} MiB")
