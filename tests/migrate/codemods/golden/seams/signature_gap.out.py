# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def forward(
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
):
    """Entropy beside the logits."""
    if output_processor is not None:
        raise NotImplementedError("this forward does not run `output_processor`")
    entropy = self.decoder(input_ids)
    return entropy


GPTModel.forward = forward
