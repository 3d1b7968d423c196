"""The flag is read, or its default depends on what is there: steps are reported instead."""


def forward(model, ids, **kwargs):
    if "return_logprobs_for_linear_ce_fusion" in kwargs:
        assert kwargs["return_logprobs_for_linear_ce_fusion"]
    fused = kwargs.get("return_logprobs_for_linear_ce_fusion", False)
    kwargs.setdefault("return_logprobs_for_linear_ce_fusion", True)
    if not fused:
        del kwargs["return_logprobs_for_linear_ce_fusion"]
    fused = kwargs.pop("return_logprobs_for_linear_ce_fusion", False)
    return model(ids, **kwargs), fused


def absent_is_not_off(model, ids):
    kwargs = {"return_logprobs_for_linear_ce_fusion": False}
    kwargs["return_logprobs_for_linear_ce_fusion"] = False
    kwargs.setdefault("return_logprobs_for_linear_ce_fusion", True)
    return model(ids, **kwargs)


def read_later(model, ids, **kwargs):
    kwargs.setdefault("return_logprobs_for_linear_ce_fusion", False)
    return model(ids, **kwargs), kwargs["return_logprobs_for_linear_ce_fusion"]
