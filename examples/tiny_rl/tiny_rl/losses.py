"""Losses of the trainer."""


def fused_log_probs(hidden, weight, labels, temperature):
    logits = (hidden @ weight.t()).float() / temperature
    return logits.log_softmax(-1).gather(-1, labels.unsqueeze(-1)).squeeze(-1)
