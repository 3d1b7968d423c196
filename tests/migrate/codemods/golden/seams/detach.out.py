# golden: unsafe target=0.19
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    for layer in model.mtp.layers:
        layer.config.mtp_detach_heads = True


def _detached(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids).detach()
    return input_ids, position_ids, padding_mask, decoder_input, hidden_states.detach()
