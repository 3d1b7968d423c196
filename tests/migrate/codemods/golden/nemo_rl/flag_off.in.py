"""A flag that is off goes: without a processor the model takes Megatron's own path."""


def entries(model, ids):
    model(ids, return_logprobs_for_linear_ce_fusion=False)
    model(ids, return_logprobs_for_linear_ce_fusion=False, labels=ids)
    model(return_logprobs_for_linear_ce_fusion=False, input_ids=ids)
    model(return_logprobs_for_linear_ce_fusion=False)
    model(
        ids,
        labels=ids,
        return_logprobs_for_linear_ce_fusion=False,  # not here
        loss_mask=None,
    )
    model(ids,  # the tokens
          return_logprobs_for_linear_ce_fusion=False)
    model(ids, **dict(return_logprobs_for_linear_ce_fusion=False, labels=ids))
    model(ids, **{"labels": ids, "return_logprobs_for_linear_ce_fusion": False})
    return {"return_logprobs_for_linear_ce_fusion": False}


def either(model, ids, fused):
    kwargs = {"labels": ids}
    if fused:
        kwargs["return_logprobs_for_linear_ce_fusion"] = True
    else:
        kwargs["return_logprobs_for_linear_ce_fusion"] = False
    return model(ids, **kwargs)


def branch(model, ids, fused):
    kwargs = dict(labels=ids)

    if not fused:
        kwargs["return_logprobs_for_linear_ce_fusion"] = False

    return model(ids, **kwargs)


def branch_with_a_call(model, ids, is_fused):
    kwargs = {}
    if is_fused():
        kwargs.update(return_logprobs_for_linear_ce_fusion=False)
    return model(ids, **kwargs)


def among_others(model, ids):
    kwargs = {}
    # what the model gets
    kwargs["labels"] = ids
    # no log-probs here
    kwargs["return_logprobs_for_linear_ce_fusion"] = False

    kwargs.update({"return_logprobs_for_linear_ce_fusion": False})
    kwargs.update({"loss_mask": None, "return_logprobs_for_linear_ce_fusion": False})
    return model(ids, **kwargs)


def defaults(model, ids, **kwargs):
    kwargs.setdefault("return_logprobs_for_linear_ce_fusion", False)
    return model(ids, **kwargs)
