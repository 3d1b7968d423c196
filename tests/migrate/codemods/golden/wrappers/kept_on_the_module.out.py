# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def forward_with_shift(self, _args, embedded):
    return embedded + self.shift


def shift_embeddings(model: GPTModel, by):
    embedding = model.embedding
    embedding.shift = by
    embedding._hook_handle = embedding.register_forward_hook(forward_with_shift)


def unshift(model: GPTModel):
    model.embedding._hook_handle.remove()
    del model.embedding._hook_handle
