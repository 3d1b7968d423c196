"""The flag is switched off where something may have switched it on: steps are reported instead."""


def given(model, ids, kwargs):
    kwargs["return_logprobs_for_linear_ce_fusion"] = False
    return model(ids, **kwargs)


def handed_on(model, ids, prepare):
    kwargs = {}
    prepare(kwargs)
    kwargs["return_logprobs_for_linear_ce_fusion"] = False
    return model(ids, **kwargs)


def condition(model, ids, fused, **kwargs):
    kwargs["return_logprobs_for_linear_ce_fusion"] = fused
    return model(ids, **kwargs)


def overriding(model, ids, base):
    kwargs = {**base, "return_logprobs_for_linear_ce_fusion": False}
    return model(ids, **kwargs)


def joined(model, ids, base):
    return model(ids, **(base | {"return_logprobs_for_linear_ce_fusion": False}))


def copied(model, ids, base):
    return model(ids, **dict(base, return_logprobs_for_linear_ce_fusion=False))


def other_than_empty(model, ids, base):
    kwargs = dict(base)
    kwargs.update(return_logprobs_for_linear_ce_fusion=False)
    return model(ids, **kwargs)


def round_by_round(model, batches, seen):
    kwargs = {}
    for ids in batches:
        kwargs["return_logprobs_for_linear_ce_fusion"] = False
        seen(kwargs)
        model(ids, **kwargs)
