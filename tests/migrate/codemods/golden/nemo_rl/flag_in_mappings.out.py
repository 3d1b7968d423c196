import math

from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs


def literal(policy_model, ids):
    arguments = {
        "labels": ids,
        **linear_ce_fusion_kwargs(policy_model, numbers="nemo_rl"),
    }
    return policy_model(ids, **arguments)


def constructor(policy_model, ids):
    arguments = dict(labels=ids, **linear_ce_fusion_kwargs(policy_model, numbers="nemo_rl"))
    return policy_model(ids, **arguments)


def update(policy_model, ids, arguments):
    arguments.update(linear_ce_fusion_kwargs(policy_model, numbers="nemo_rl"))
    return policy_model(ids, **arguments)


def update_with_labels(policy_model, ids, arguments):
    arguments.update({"labels": ids, **linear_ce_fusion_kwargs(policy_model, numbers="nemo_rl")})
    return policy_model(ids, **arguments)


def update_alone(policy_model, ids, arguments):
    arguments.update(linear_ce_fusion_kwargs(policy_model, numbers="nemo_rl"))
    return policy_model(ids, **arguments)


def unpacked(policy_model, ids):
    return policy_model(ids, labels=ids, **linear_ce_fusion_kwargs(policy_model, numbers="nemo_rl")), math.pi


def passed_along(run, policy_model, ids):
    arguments = linear_ce_fusion_kwargs(policy_model, numbers="nemo_rl")
    return run(policy_model, ids, **arguments)
