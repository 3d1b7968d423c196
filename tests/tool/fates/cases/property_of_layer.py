"""How deep a layer lies, as a property of the layer."""

from megatron.core.transformer.transformer_layer import TransformerLayer


def _depth(self):
    return self.layer_number / self.config.num_layers


TransformerLayer.depth = property(_depth)
