# golden: annotate
from megatron.core.transformer.transformer_block import TransformerBlock


def forward(self, *args, **kwargs):
    return None


TransformerBlock.forward = forward
