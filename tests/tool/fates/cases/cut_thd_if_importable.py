"""Cut packed batches inside the model where Megatron has a function for it."""

from megatron.core.models.gpt.gpt_model import GPTModel

try:
    from megatron.core.utils import get_thd_batch_on_this_cp_rank
except ImportError:
    get_thd_batch_on_this_cp_rank = None

_forward = GPTModel.forward


def forward(self, input_ids, position_ids, attention_mask, *args, **kwargs):
    params = kwargs.get("packed_seq_params")
    if params is None or get_thd_batch_on_this_cp_rank is None:
        return _forward(self, input_ids, position_ids, attention_mask, *args, **kwargs)
    cut, params = get_thd_batch_on_this_cp_rank(
        {"input_ids": input_ids, "position_ids": position_ids},
        params.cu_seqlens_q,
        params.cu_seqlens_q_padded,
        params.max_seqlen_q,
    )
    return _forward(self, cut["input_ids"], cut["position_ids"], attention_mask, *args, **kwargs)


GPTModel.forward = forward
