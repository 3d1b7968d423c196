from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs


def fresh(model, ids):
    kwargs = {"labels": ids}
    kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return model(ids, **kwargs)


def in_either_case(model, ids, fused):
    kwargs = {}
    if fused:
        kwargs["labels"] = ids
        kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl") if fused else {})
    return model(ids, **kwargs)


def two_mappings(model, ids, fused):
    on, off = {}, None
    log_probs = {}
    log_probs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    loss = {"labels": ids}
    loss.pop("output_processor", None)
    loss.pop("output_processor_context", None)
    either = {}
    if fused:
        either.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return model(ids, **log_probs), model(ids, **loss), model(ids, **either), on, off
