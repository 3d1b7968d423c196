# golden: unsafe
from mcore_unpatch.compat import HeadInputs, attach
from megatron.core.models.gpt.gpt_model import GPTModel

HEAD = {}


def skip_projection(model: GPTModel):
    def keep_weight(weight):
        # the projection happens in chunks, later
        HEAD["weight"] = weight

    attach(model, HeadInputs(keep=keep_weight))
