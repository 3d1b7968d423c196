"""A flag that is off goes: without a processor the model takes Megatron's own path."""

from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs


def entries(model, ids):
    model(ids)
    model(ids, labels=ids)
    model(input_ids=ids)
    model()
    model(
        ids,
        labels=ids,
        loss_mask=None,
    )
    model(ids,  # the tokens
          )
    model(ids, **dict(labels=ids))
    model(ids, **{"labels": ids})
    return {}


def either(model, ids, fused):
    kwargs = {"labels": ids}
    if fused:
        kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return model(ids, **kwargs)


def branch(model, ids, fused):
    kwargs = dict(labels=ids)

    return model(ids, **kwargs)


def branch_with_a_call(model, ids, is_fused):
    kwargs = {}
    if is_fused():
        pass
    return model(ids, **kwargs)


def among_others(model, ids):
    kwargs = {}
    # what the model gets
    kwargs["labels"] = ids

    kwargs.update({"loss_mask": None})
    return model(ids, **kwargs)


def defaults(model, ids, **kwargs):
    return model(ids, **kwargs)
