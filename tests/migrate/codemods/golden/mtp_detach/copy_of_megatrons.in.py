# golden: unsafe target=0.18
from megatron.core.transformer.multi_token_prediction import MultiTokenPredictionLayer, roll_tensor
from megatron.core.utils import make_viewless_tensor


def detach_encoder(model):
    for layer in model.mtp.layers:
        if isinstance(layer, MultiTokenPredictionLayer):
            # The MTP loss must not train the policy.
            layer._get_embeddings = _get_embeddings.__get__(layer, MultiTokenPredictionLayer)  # every depth


def _get_embeddings(self, input_ids, position_ids, embedding, hidden_states, packed_seq_params=None, padding_mask=None):
    input_ids, _ = roll_tensor(
        input_ids, shifts=-1, dims=-1, cp_group=self.cp_group, packed_seq_params=packed_seq_params
    )
    position_ids, _ = roll_tensor(
        position_ids, shifts=-1, dims=-1, cp_group=self.cp_group, packed_seq_params=packed_seq_params
    )
    if padding_mask is not None:
        padding_mask, _ = roll_tensor(
            padding_mask, shifts=-1, dims=-1, cp_group=self.cp_group, packed_seq_params=packed_seq_params
        )
    decoder_input = embedding(input_ids=input_ids, position_ids=position_ids)
    decoder_input = decoder_input.detach()
    hidden_states = make_viewless_tensor(inp=hidden_states.detach(), requires_grad=True, keep_graph=True)
    return input_ids, position_ids, padding_mask, decoder_input, hidden_states
