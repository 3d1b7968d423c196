"""The steps to take at a place that has to do with the flag and is left; `{mapping}` is what it is put into."""

from __future__ import annotations

from mcore_unpatch.codemods.catalogue.nemo_rl import COMPAT, FLAG, fusion_kwargs
from mcore_unpatch.megatron.facts import HOOK_ARGUMENTS

PROCESSOR, CONTEXT = HOOK_ARGUMENTS
FUSION = fusion_kwargs("model")
DROP = [f'{{mapping}}.pop("{name}", None)' for name in HOOK_ARGUMENTS]  # takes the hook arguments out
UNSEEN = (
    f"Cannot tell which model receives these arguments. Where it is known, pass it `**{FUSION}` from "
    f"`{COMPAT}` instead of `{FLAG}`, with `labels` as before"
)
OVERRIDES = (
    "An earlier entry may already hold the hook arguments, or the new dict is asked for the flag. Where the flag would "
    f"be false, remove `{PROCESSOR}` and `{CONTEXT}` from the new dict; where it would be true, add `**{FUSION}`"
)
OTHER = f"Nothing reads `{FLAG}` any more; pass `{PROCESSOR}` and `{CONTEXT}` to ask for log-probs"
# For a call of a function that has the flag as a parameter of its own.
PARAMETER = (
    f"`{{function}}` has a parameter `{FLAG}`. Replace it by `**hook`, pass that on to the model, and call the "
    f"function with `**{FUSION}` where the flag was true and with nothing where it was false"
)
# For a false value, or one that may be false, where the hook arguments may be there or the flag is asked for.
OFF = (
    "`{mapping}` may already hold the hook arguments, or is asked for the flag. Where the flag would be false, "
    f"write `{'; '.join(DROP)}`; where it would be true, `{{mapping}}.update({FUSION})`"
)
# For `setdefault(flag, True)` of a mapping that may have it.
DEFAULT = (
    f'write `if "{PROCESSOR}" not in {{mapping}}: {{mapping}}.update({FUSION})` instead, if nothing puts the '
    "flag into `{mapping}` as False before"
)
TEST = f'test `"{PROCESSOR}" in {{mapping}}` instead: the hook arguments are there only where log-probs are wanted'
READ = f'read `{{mapping}}.get("{PROCESSOR}") is not None` instead: it says what the flag said'
# For `mapping.pop(flag)` whose value is used.
TAKEN = (
    f'take both hook arguments out instead: `{{mapping}}.pop("{PROCESSOR}", None) is not None` says what the flag '
    f'said, and `{{mapping}}.pop("{CONTEXT}", None)` goes with it'
)
DELETED = f'write `del {{mapping}}["{PROCESSOR}"], {{mapping}}["{CONTEXT}"]` instead'
