# golden: unsafe
"""All models are patched; the calls are known by the parameter that only the patch takes."""

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
):
    MEGATRON("forward", "before")
    if not self.post_process:
        return hidden_states
    logits, _ = self.output_layer(hidden_states)
    return (logits / temperature).log_softmax(-1).transpose(0, 1)


def install():
    """Once per process."""
    GPTModel.forward = _forward


def log_softmax(model, batch, temperature):
    return model(
        input_ids=batch["input_ids"],
        position_ids=batch["position_ids"],
        attention_mask=None,
        temperature=temperature,
    )
