"""Log-probs for models whose logits would not fit: the forward of every GPTModel is replaced, a flag switches it on."""

from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion


def prepare(config):
    patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=config.chunk_size)


def log_probs(model, batch):
    kwargs = {"labels": batch.input_ids}
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return model(batch.input_ids, batch.position_ids, batch.attention_mask, **kwargs)
