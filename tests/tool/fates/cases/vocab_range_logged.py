"""Say which part of the vocabulary a rank holds; the method is static."""

import logging

from megatron.core.tensor_parallel.utils import VocabUtility

logger = logging.getLogger(__name__)
_range = VocabUtility.vocab_range_from_global_vocab_size


@staticmethod
def vocab_range_from_global_vocab_size(global_vocab_size, rank, world_size):
    first, last = _range(global_vocab_size, rank, world_size)
    logger.debug("rank %d holds %d to %d", rank, first, last)
    return first, last


VocabUtility.vocab_range_from_global_vocab_size = vocab_range_from_global_vocab_size
