def forward(model, ids, supported, **kwargs):
    if not supported:
        kwargs.pop("return_logprobs_for_linear_ce_fusion", None)  # an older model
    if ids is None: kwargs.pop("return_logprobs_for_linear_ce_fusion", None)
    return model(ids, **kwargs)
