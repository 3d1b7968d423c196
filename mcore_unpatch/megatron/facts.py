"""Hand-kept facts about Megatron Core that its signatures do not show."""

from __future__ import annotations

from mcore_unpatch.megatron.layout import GPT_MODEL, MTP_LAYER, POSTPROCESS_NODE
from mcore_unpatch.megatron.versions import Version

MTP = MTP_LAYER.rpartition(".")[0]

HOOK_SINCE: Version = (0, 18)
HOOK_ARGUMENTS = ("output_processor", "output_processor_context")
# The methods that are handed the hook. A replacement that does not call it drops it.
HOOK_CARRIERS = {(GPT_MODEL, "forward"), (GPT_MODEL, "_postprocess"), (GPT_MODEL, "build_schedule_plan")}

# Methods that Megatron itself calls with every parameter by keyword: a missing one is a certain TypeError.
CALLED_IN_FULL = {(GPT_MODEL, "_postprocess"), (MTP_LAYER, "_checkpointed_forward")}

# How many values a method returns to the code that unpacks them: (since, count).
RETURNED_VALUES: dict[tuple[str, str], list[tuple[Version, int]]] = {
    (MTP_LAYER, "_get_embeddings"): [((0, 12), 4), ((0, 18), 5)],
}

# Assignments that have no effect from a release on.
INERT_SINCE: dict[tuple[str, str], tuple[Version, str]] = {
    (POSTPROCESS_NODE, "forward_impl"): ((0, 14), "the node keeps the method it was built with"),
}

# What stands in the place of a name that a release took away.
NOW = {
    f"{MTP}.MTPLossLoggingHelper.save_loss_to_tracker": "save_metrics_to_tracker",
    f"{MTP}.MTPLossLoggingHelper.reduce_loss_in_tracker": "reduce_metrics_in_tracker",
    f"{MTP}.MTPLossLoggingHelper.clean_loss_in_tracker": "clean_metrics_in_tracker",
    "megatron.core.models.gpt.fine_grained_callables.PostProcessNode": POSTPROCESS_NODE,
}
