def model_forward(model, batch, return_logprobs_for_linear_ce_fusion: bool = False):
    if not return_logprobs_for_linear_ce_fusion:
        return model(**batch)
    raise NotImplementedError
