# golden: unsafe target=0.17
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
):
    """Entropy beside the logits."""
    entropy = self.decoder(input_ids)
    return entropy


GPTModel.forward = forward
