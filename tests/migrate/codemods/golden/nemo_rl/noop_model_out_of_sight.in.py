"""Nothing here says which model the arguments are for: steps are reported instead."""


def fusion_arguments(batch):
    return {"labels": batch["input_ids"], "return_logprobs_for_linear_ce_fusion": True}
