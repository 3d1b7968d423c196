"""Keys of a checkpoint start with the name of the experiment."""

from megatron.core.models.gpt.gpt_model import GPTModel

_sharded = GPTModel.sharded_state_dict


def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
    return _sharded(self, f"experiment.{prefix}", sharded_offsets, metadata)


GPTModel.sharded_state_dict = sharded_state_dict
