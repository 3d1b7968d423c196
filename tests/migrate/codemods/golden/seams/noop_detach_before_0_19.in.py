# golden: unsafe target=0.18
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    for layer in model.mtp.layers:
        layer._get_embeddings = _detached.__get__(layer, layer.__class__)


def _detached(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids).detach()
    return input_ids, position_ids, padding_mask, decoder_input, hidden_states.detach()
