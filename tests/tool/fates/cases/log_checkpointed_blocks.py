"""Count how often a block is recomputed."""

import logging

from megatron.core.transformer.transformer_block import TransformerBlock

logger = logging.getLogger(__name__)


def _counted(checkpointed_forward):
    def run(self, *args, **kwargs):
        logger.debug("recomputing %d layers", len(self.layers))
        return checkpointed_forward(self, *args, **kwargs)

    return run


def install():
    TransformerBlock._checkpointed_forward = _counted(TransformerBlock._checkpointed_forward)
