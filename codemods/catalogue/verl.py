"""veRL, and forks of it: the patches of its three files, and every use of them."""

from __future__ import annotations

from mcore_unpatch.codemods.codemod import Example
from mcore_unpatch.codemods.shims.contract import Contract, Gain, Shim, ShimCodemod
from mcore_unpatch.findings.rules import Rule

_FUSED = (
    *("FusedOutputProcessorContext", "fused_forward_model_engine", "fused_forward_model_gen"),
    *("fused_forward_no_padding_gen", "fused_output_processor", "patch_fused_forward"),
    "unpatch_fused_forward",
)
FUSED = Shim(
    "models/mcore/model_forward_fused.py",
    "mcore_unpatch.compat.verl.model_forward_fused",
    dict.fromkeys(_FUSED, "MCU701"),
    (Gain("fused kernels with MTP on and for padded batches too, and a faster training step (docs/gpu.md)"),),
    level="rounding",
)
MTP = Shim(
    "models/mcore/mtp_patch.py",
    "mcore_unpatch.compat.verl.mtp_patch",
    {
        "patch_mtp_layer_checkpointed_forward": "MCU704",
        "patch_mtp_layer_get_embeddings": "MCU703",
        "patch_postprocess": "MCU702",
        "unpatch_mtp_layer_checkpointed_forward": "MCU704",
        "unpatch_mtp_layer_get_embeddings": "MCU703",
        "unpatch_postprocess": "MCU702",
    },
    (
        Gain(
            "MTP with full recompute works on Megatron Core {}, where it raises TypeError", (0, 18), (0, 19), mends=True
        ),
        Gain("a caller's output_processor is called with MTP on Megatron Core {}, and no longer dropped", (0, 19)),
    ),
    differs=(
        (
            b"= hidden_states.detach(",
            "this copy cuts before each MTP layer, the shim before the first: pass every_depth=True",
        ),
    ),
)
OVERLAP = Shim(
    "models/mcore/model_forward_1f1b_overlap.py",
    "mcore_unpatch.compat.verl.model_forward_1f1b_overlap",
    {"gptmodel_forward_1f1b_overlap": "MCU705"},
)

VERL = Contract(
    package="verl",
    shims=(FUSED, MTP, OVERLAP),
    words=(
        *(b"fused_forward", b"forward_fused", b"FusedOutputProcessorContext", b"fused_output_processor", b"mtp_patch"),
        *(b"patch_mtp_layer", b"patch_postprocess", b"1f1b_overlap"),
    ),
    # The shims pack and unpack for themselves, and have kernels: a fork's change of these is lost as well.
    helpers={
        "models/mcore/util.py": (
            *("preprocess_packed_seqs", "preprocess_thd_engine", "preprocess_thd_no_padding"),
            *("postprocess_packed_seqs", "postprocess_thd_engine", "postprocess_thd_no_padding"),
            *("postprocess_packed_seqs_for_dict_output", "build_vlm_attn_mask_thd"),
        ),
        "utils/kernel/linear_cross_entropy.py": ("linear_cross_entropy",),
        "utils/kernel/kernels.py": ("linear_cross_entropy",),
    },
)


def _moved(rule: str, module: str, name: str) -> Example:
    """A function that is imported from the shim where that is there."""
    body = f"\n\ndef prepare(models):\n    for model in models:\n        {name}(model)"
    old, new = (f"from {home}.{module} import {name}" for home in ("verl.models.mcore", "mcore_unpatch.compat.verl"))
    rows = (one if len(one) <= 84 else f"{one.removesuffix(name)}(\n        {name},\n    )" for one in (new, old))
    after = "try:  # Megatron Core 0.18 and later: on its output_processor hook\n    {}\nexcept ImportError:\n    {}\n"
    return Example(rule, before=f"{old}\n{body}", after=after.format(*rows) + body)


class Verl(ShimCodemod):
    """Its patch functions become those of the shims."""

    name, title = "verl", "veRL"
    rules = (
        Rule(
            "MCU701",
            "verl-fused-forward",
            "veRL's fused forward replaces `GPTModel.forward` with a copy",
            "Every model that goes through `patch_fused_forward` runs veRL's copy of a Megatron forward: a "
            "release that adds a parameter breaks it, MTP is off with it, and a caller's `output_processor` is "
            "refused or dropped. The shim has the same names and numbers, and runs in the hook. veRL 0.9 passes "
            "`output_processor` itself where the model takes it: the shim is an offer there.",
            versions="the hook exists since 0.18",
            seam="output",
        ),
        Rule(
            "MCU702",
            "verl-mtp-postprocess",
            "veRL's MTP patch replaces `GPTModel._postprocess` with a copy",
            "`_postprocess` is private. veRL's copies raise TypeError on 0.17 or 0.18, or take `output_processor` "
            "and never call it. The shim has the same names, and lets Megatron compute the MTP loss.",
            versions="the hook exists since 0.18",
            seam="mtp",
        ),
        Rule(
            "MCU703",
            "verl-mtp-embeddings",
            "veRL's encoder detach replaces `_get_embeddings` of the MTP layers",
            "`_get_embeddings` is private; 0.18 passes it more arguments and unpacks another number of results. "
            "The shim detaches in a hook of PyTorch, at the same depths.",
            versions="the shim works since 0.18",
            seam="mtp",
        ),
        Rule(
            "MCU704",
            "verl-mtp-checkpointed-forward",
            "veRL's MTP recomputation replaces `_checkpointed_forward` of the MTP layers",
            "`_checkpointed_forward` is private, and the copy breaks on 0.18. The shim does nothing on 0.19, "
            "where Megatron itself recomputes MTP layers, and on 0.18 puts in layers with the same parameters "
            "that can.",
            versions="the shim works since 0.18",
            seam="mtp",
        ),
        Rule(
            "MCU705",
            "verl-1f1b-overlap",
            "veRL's 1F1B overlap replaces `_postprocess` of the model for good",
            "It raises TypeError on 0.18, reads a weight that tied models do not have, and is never undone. The "
            "shim gives the hook to `build_schedule_plan`.",
            versions="the hook in `build_schedule_plan` exists since 0.18",
            seam="schedule",
        ),
    )
    contract, words = VERL, VERL.words
    examples = (
        _moved("MCU701", "model_forward_fused", "patch_fused_forward"),
        _moved("MCU702", "mtp_patch", "patch_postprocess"),
        _moved("MCU703", "mtp_patch", "patch_mtp_layer_get_embeddings"),
        _moved("MCU704", "mtp_patch", "patch_mtp_layer_checkpointed_forward"),
        _moved("MCU705", "model_forward_1f1b_overlap", "gptmodel_forward_1f1b_overlap"),
    )
    covers = """
0.5.0 to 0.9.1, and forks of them under any package name and in any folder
"""
    changes = """
- Every import of `verl/models/mcore/model_forward_fused.py`, `mtp_patch.py` and `model_forward_1f1b_overlap.py` tries
  the module of the same name in `mcore_unpatch.compat.verl` first, and makes the old import where that raises
  ImportError: where Megatron has no hook, or the package is not installed. The old statement stays byte for byte.
- All uses of one file move together, or none: a model that carries the old patch makes the shim raise. A patch of
  another file that would be in the way, and that newer Megatrons do not need, gets an upper bound with them.
- Where every Megatron in use has the hook, and the project requires `mcore-unpatch[compat]`, the import is plain.
- The files that define the patches stay as they are.
"""
    applied = """
The edit is `exact` or `rounding` only if a function and all it calls are those of a release: its syntax tree without
docstrings, comments and annotations has a hash in `codemods/fingerprints/verl.json`, the names it imports come from
where upstream has them, and what the shims have their own of is unchanged too: the packing helpers of `util.py`, and
the kernels. What somebody changed is left, and what passes `output_processor` itself, as the fused forward of 0.9
does; `--select MCU1,MCU7 --unsafe-fixes` moves both all the same. What leaves parts of upstream's functions out moves
with `--unsafe-fixes`.
"""
    by_hand = """
- **The numbers stay veRL's.** The shims have a switch for Megatron's own, `patch_fused_forward(model,
  numbers="megatron")` and `patch_postprocess(model, numbers="megatron")`, which is yours to turn: logits are scaled
  under MuP; with tensor and without sequence parallelism the gradient of the hidden states is summed over the
  ranks; fused forwards train MTP; the last token of a sequence, which has no label, gives 0. Where veRL's numbers
  differ from these, the shims warn.
- **The guard that turns fused kernels off when MTP is on** is reported, not removed: with `numbers="megatron"` the
  shims run both together. In 0.7 to 0.9 the same test also covers value models and padded batches.
- **MTP and the LM head.** The MTP loss updates the LM head, as it did with every veRL release on megatron-core 0.17
  and later. `patch_postprocess(model, mtp_updates_lm_head=False)` keeps it out.
- **MTP without labels.** On megatron-core 0.19 and later a call with `labels=None` derives labels from the input
  ids and adds an MTP loss. The shim prevents this for models that went through `patch_postprocess`.
- **Encoder detach** cuts before the first MTP layer, as 0.8 and 0.9 do. 0.7 cuts before each: there the move takes
  `--unsafe-fixes`, and `every_depth=True` keeps its numbers.
- **A patched or fp32 output layer.** The fused path reads the weight, not the layer's forward, as before; a layer
  that is no plain column-parallel one is refused.
- **Tests** that replace a name in the old modules still reach the old side alone.
- `verl/models/mcore/patch.py` patches other parts of Megatron: `unpatch scan` lists them.
"""
