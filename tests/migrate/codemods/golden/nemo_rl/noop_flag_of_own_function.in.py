"""A function with a parameter of the flag's name would not know the hook arguments."""


def run(model, ids, return_logprobs_for_linear_ce_fusion=False):
    return model(ids) if return_logprobs_for_linear_ce_fusion else None


def both(model, ids):
    run(model, ids, return_logprobs_for_linear_ce_fusion=False)
    return run(model, ids, return_logprobs_for_linear_ce_fusion=True)
