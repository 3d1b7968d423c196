"""Cut packed batches inside the model, for data loaders that do not."""

from megatron.core.models.gpt.gpt_model import GPTModel

_forward = GPTModel.forward


def forward(self, input_ids, position_ids, attention_mask, *args, **kwargs):
    from megatron.core.utils import get_thd_batch_on_this_cp_rank

    params = kwargs.get("packed_seq_params")
    if params is not None:
        cut, params = get_thd_batch_on_this_cp_rank(
            {"input_ids": input_ids, "position_ids": position_ids},
            params.cu_seqlens_q,
            params.cu_seqlens_q_padded,
            params.max_seqlen_q,
        )
        input_ids, position_ids = cut["input_ids"], cut["position_ids"]
    return _forward(self, input_ids, position_ids, attention_mask, *args, **kwargs)


def install():
    GPTModel.forward = forward
