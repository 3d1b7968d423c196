# golden: unsafe
"""All of a release, `_postprocess` written into the forward, with the call of the hook; MTP is for labels alone."""

from megatron.core.inference.utils import InferenceMode
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import gather_from_sequence_parallel_region
from megatron.core.transformer.multi_token_prediction import process_mtp_loss
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
    output_processor=None,
    output_processor_context=None,
    temperature=1.0,
):
    MEGATRON("forward", "before")
    MEGATRON("_postprocess", "hook", replace=(("mtp_in_postprocess", "self.mtp_process"), ("if self.config.mtp_num_layers:", "if self.config.mtp_num_layers and labels is not None:")))
    MEGATRON("_postprocess", "idle")
    logits, _ = self.output_layer(hidden_states, weight=output_weight, runtime_gather_output=runtime_gather_output)
    logits = self._scale_logits(logits) / temperature
    return self.compute_language_model_loss(labels, logits)


def patch(model: GPTModel):
    model.forward = _forward.__get__(model, GPTModel)
