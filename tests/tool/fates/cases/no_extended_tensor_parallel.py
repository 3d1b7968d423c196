"""Refuse a configuration that we do not support."""

from megatron.core.transformer.transformer_config import TransformerConfig

_post_init = TransformerConfig.__post_init__


def check(self):
    if self.moe_extended_tp:
        raise ValueError("extended tensor parallelism is not supported")
    _post_init(self)


TransformerConfig.__post_init__ = check
