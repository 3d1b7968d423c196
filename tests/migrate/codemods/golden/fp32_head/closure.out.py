# golden: unsafe target=0.18
from mcore_unpatch.compat import fp32_logits
from megatron.core.models.gpt.gpt_model import GPTModel


def score_in_fp32(model: GPTModel):
    layer = model.output_layer

    layer.tag = "fp32"
    fp32_logits(model)
