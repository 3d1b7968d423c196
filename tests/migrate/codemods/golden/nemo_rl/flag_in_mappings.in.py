import math


def literal(policy_model, ids):
    arguments = {
        "labels": ids,
        "return_logprobs_for_linear_ce_fusion": True,
    }
    return policy_model(ids, **arguments)


def constructor(policy_model, ids):
    arguments = dict(labels=ids, return_logprobs_for_linear_ce_fusion=True)
    return policy_model(ids, **arguments)


def update(policy_model, ids, arguments):
    arguments.update(return_logprobs_for_linear_ce_fusion=True)
    return policy_model(ids, **arguments)


def update_with_labels(policy_model, ids, arguments):
    arguments.update({"labels": ids, "return_logprobs_for_linear_ce_fusion": True})
    return policy_model(ids, **arguments)


def update_alone(policy_model, ids, arguments):
    arguments.update({"return_logprobs_for_linear_ce_fusion": True})
    return policy_model(ids, **arguments)


def unpacked(policy_model, ids):
    return policy_model(ids, labels=ids, **{"return_logprobs_for_linear_ce_fusion": True}), math.pi


def passed_along(run, policy_model, ids):
    arguments = dict(return_logprobs_for_linear_ce_fusion=True)
    return run(policy_model, ids, **arguments)
