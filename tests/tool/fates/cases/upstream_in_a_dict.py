"""What we replaced is kept in a table, and called from there."""

from megatron.core.transformer.moe.router import TopKRouter

upstream = {}


def _remember(cls, name, replacement):
    upstream[cls, name] = getattr(cls, name)
    setattr(cls, name, replacement)


def routing(self, *args, **kwargs):
    probs, routing_map = upstream[TopKRouter, "routing"](self, *args, **kwargs)
    return probs * 2, routing_map


def install():
    _remember(TopKRouter, "routing", routing)
