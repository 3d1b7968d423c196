"""Hand-kept facts about Megatron Core that its signatures do not show."""

from __future__ import annotations

import re

from mcore_unpatch.megatron.layout import GPT_MODEL, POSTPROCESS_NODE
from mcore_unpatch.megatron.versions import Version

HOOK_SINCE: Version = (0, 18)
HOOK_ARGUMENTS = ("output_processor", "output_processor_context")
# The methods that are handed the hook. A replacement that does not call it drops it.
HOOK_CARRIERS = {(GPT_MODEL, "forward"), (GPT_MODEL, "_postprocess"), (GPT_MODEL, "build_schedule_plan")}

# Assignments that have no effect from a release on.
INERT_SINCE: dict[tuple[str, str], tuple[Version, str]] = {
    (POSTPROCESS_NODE, "forward_impl"): ((0, 14), "the node keeps the method it was built with"),
}

# Parameters and config fields that are about when and where the same numbers are computed, kept or sent, by a part of
# their names: communication that overlaps, multiprocessors for a kernel, CUDA graphs and their memory, what is
# recomputed or kept on the CPU, threads that write a checkpoint, timers. A fused kernel is none of these:
# it rounds in its own way.
SPEED_ONLY = re.compile(
    r"overlap|num_sms|cuda_graph|mempool|offloading|recompute|saved_activations|thread_count|barrier_with|timers|log_level"
)

# Classes that Megatron compares with `module` of a ModuleSpec: a subclass in a spec is another one there.
_OF_MLP = (
    " Since 0.18 `TransformerLayer` knows a `ModuleSpec` of Megatron's own MLP alone, and calls others with arguments "
    "that an MLP does not take: give the spec `functools.partial(YourClass.as_mlp_submodule, submodules=...)` as `mlp`."
)
COMPARED_IN_SPECS = {
    "TransformerLayer": " With MTP give `get_gpt_mtp_block_spec` the block's `TransformerBlockSubmodules`: it raises "
    "for the spec of a subclass.",
    "MLP": _OF_MLP,
    "TEFusedMLP": _OF_MLP,
}
