def fresh(model, ids):
    kwargs = {"labels": ids}
    kwargs.setdefault("return_logprobs_for_linear_ce_fusion", True)
    return model(ids, **kwargs)


def in_either_case(model, ids, fused):
    kwargs = {}
    if fused:
        kwargs["labels"] = ids
        kwargs["return_logprobs_for_linear_ce_fusion"] = fused
    return model(ids, **kwargs)


def two_mappings(model, ids, fused):
    on, off = {}, None
    log_probs = {}
    log_probs.setdefault("return_logprobs_for_linear_ce_fusion", True)
    loss = {"labels": ids, "return_logprobs_for_linear_ce_fusion": False}
    loss["return_logprobs_for_linear_ce_fusion"] = False
    loss.pop("return_logprobs_for_linear_ce_fusion", None)
    either = {}
    if fused:
        either.setdefault("return_logprobs_for_linear_ce_fusion", True)
    else:
        either["return_logprobs_for_linear_ce_fusion"] = False
    return model(ids, **log_probs), model(ids, **loss), model(ids, **either), on, off
