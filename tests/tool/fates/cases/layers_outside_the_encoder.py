"""Say which part of the model a block belongs to when it is built."""

import logging

from megatron.core import parallel_state
from megatron.core.transformer.transformer_block import TransformerBlock

logger = logging.getLogger(__name__)
_build_layers = TransformerBlock._build_layers


def _part():
    return "encoder" if parallel_state.is_inside_encoder() else "decoder"


def _announce():
    logger.info("building the %s", _part())


def build(self):
    _announce()
    return _build_layers(self)


TransformerBlock._build_layers = build
