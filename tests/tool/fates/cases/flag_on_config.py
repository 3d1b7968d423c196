"""A field of our own on the configuration, read by our layers."""

from megatron.core.transformer.transformer_config import TransformerConfig

TransformerConfig.use_our_adapter = False
