# golden: unsafe target=0.18
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer, roll_tensor
from megatron.core.utils import make_viewless_tensor


def detach_layer(layer: MultiTokenPredictionLayer):
    layer._get_embeddings = _detached.__get__(layer)


def _detached(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    input_ids, _ = roll_tensor(input_ids, shifts=-1, dims=-1, cp_group=self.cp_group)
    position_ids, _ = roll_tensor(position_ids, shifts=-1, dims=-1, cp_group=self.cp_group)
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids).detach()
    hidden_states = make_viewless_tensor(inp=hidden_states, requires_grad=True, keep_graph=False)
    if padding_mask is None:
        return input_ids, position_ids, decoder_input, hidden_states
    return input_ids, position_ids, padding_mask, decoder_input, hidden_states
