# golden: unsafe
"""A wrapper that installs a closure while it is open."""

from contextlib import contextmanager

from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.utils import deprecate_inference_params


@contextmanager
def top_logits(model: GPTModel, k: int):
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
    ):
        MEGATRON("forward", "before")
        if not self.post_process:
            return hidden_states
        logits, _ = self.output_layer(hidden_states)
        return logits.transpose(0, 1).topk(k).values

    original = model.forward
    model.forward = forward.__get__(model, GPTModel)
    try:
        yield
    finally:
        model.forward = original
