"""Say when a checkpoint is written."""

import logging

from megatron.core import dist_checkpointing

logger = logging.getLogger(__name__)
_save = dist_checkpointing.save


def save(sharded_state_dict, checkpoint_dir, sharded_strategy=None, common_strategy=None, **kwargs):
    logger.info("writing %s", checkpoint_dir)
    return _save(sharded_state_dict, checkpoint_dir, sharded_strategy, common_strategy, **kwargs)


dist_checkpointing.save = save
