"""The last rank prints nothing."""

from megatron.training import utils


def is_last_rank():
    return False


utils.is_last_rank = is_last_rank
