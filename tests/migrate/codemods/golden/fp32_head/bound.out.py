# golden: unsafe
from mcore_unpatch.compat import fp32_logits
from megatron.core.models.gpt.gpt_model import GPTModel


def score_in_fp32(model: GPTModel):
    if model.post_process:
        fp32_logits(model)  # as the engine does
