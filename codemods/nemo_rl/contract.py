"""The contract with `mcore_unpatch.compat.nemo_rl`, and the names of what it replaces."""

from __future__ import annotations

from mcore_unpatch.codemods.shims.contract import Contract, Shim

COMPAT = "mcore_unpatch.compat.nemo_rl"
RULE = "MCU706"
PATCH = "patch_gpt_model_forward_for_linear_ce_fusion"
FORWARD = "_gpt_forward_with_linear_ce_fusion"
FLAG = "return_logprobs_for_linear_ce_fusion"
KWARGS = "linear_ce_fusion_kwargs"


def fusion_kwargs(model: str) -> str:
    """The call that gives the hook arguments, with the numbers of the patch that it takes the place of."""
    return f'{KWARGS}({model}, numbers="nemo_rl")'


NEMO_RL = Contract(
    package="nemo_rl",
    shims=(Shim("distributed/model_utils.py", COMPAT, {PATCH: RULE}),),
    words=(b"linear_ce_fusion",),
    keeps_names=False,
    private=(FORWARD, FLAG),
)
