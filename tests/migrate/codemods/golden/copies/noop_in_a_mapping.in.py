# golden: unsafe
"""All models are patched, and the temperature reaches them in a mapping."""

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params


def _forward(
    self,
    input_ids,
    position_ids,
    attention_mask,
    decoder_input=None,
    labels=None,
    inference_context=None,
    packed_seq_params=None,
    extra_block_kwargs=None,
    runtime_gather_output=None,
    *,
    inference_params=None,
    loss_mask=None,
    padding_mask=None,
    temperature=1.0,
    **kwargs,
):
    MEGATRON("forward", "before")
    logits, _ = self.output_layer(hidden_states)
    return (logits / temperature).log_softmax(-1).transpose(0, 1)


GPTModel.forward = _forward


def log_softmax(model, batch, temperature):
    arguments = {**batch, "temperature": temperature}
    return model(**arguments)
