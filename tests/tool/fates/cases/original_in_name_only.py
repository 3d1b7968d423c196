"""Rotary embedding at the positions of the original text, before it was packed."""

import torch
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding


def original_positions(length, offset):
    return torch.arange(length).float() + offset


def forward(self, max_seq_len, offset=0, packed_seq=False):
    positions = original_positions(max_seq_len, offset)
    freqs = torch.outer(positions, self.inv_freq)
    return torch.cat((freqs, freqs), dim=-1)[:, None, None, :]


RotaryEmbedding.forward = forward
