"""Print the loss of each MTP layer as it is recorded."""

import logging

from megatron.core.transformer.multi_token_prediction import MTPLossLoggingHelper

logger = logging.getLogger(__name__)

_record = MTPLossLoggingHelper.save_loss_to_tracker


def _record_and_print(loss, layer_number, *args, **kwargs):
    logger.info("MTP layer %d: %s", layer_number, loss)
    return _record(loss, layer_number, *args, **kwargs)


MTPLossLoggingHelper.save_loss_to_tracker = staticmethod(_record_and_print)
