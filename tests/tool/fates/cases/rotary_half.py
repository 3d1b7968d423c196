"""Half of the rotary frequencies."""

import torch
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding


def forward(self, max_seq_len, offset=0, packed_seq=False):
    freqs = self.get_freqs_non_repeated(max_seq_len, offset) / 2
    return torch.cat((freqs, freqs), dim=-1)[:, None, None, :]


RotaryEmbedding.forward = forward
