"""NeMo RL: its linear cross-entropy fusion, a patch of every GPTModel and a flag of each call."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example
from mcore_unpatch.codemods.shims.contract import Contract, Gain, Shim, ShimCodemod
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Rule

if TYPE_CHECKING:
    from mcore_unpatch.codemods.shims.exports import Exports

COMPAT = "mcore_unpatch.compat.nemo_rl"
RULE = "MCU706"
PATCH = "patch_gpt_model_forward_for_linear_ce_fusion"
FORWARD = "_gpt_forward_with_linear_ce_fusion"
FLAG = "return_logprobs_for_linear_ce_fusion"
KWARGS = "linear_ce_fusion_kwargs"


_GAINS = (
    Gain(
        "on Megatron Core {} log-probs are those of float32 logits, where bfloat16 is off by some hundredths; tensor "
        "parallelism without sequence parallelism trains; GPTModel.forward is no longer a copy"
    ),
)
_RECIPE = f"""the hook without a dependency, in three places

In {{path}}, in place of `{PATCH}` and `{FORWARD}`:

linear_ce_fusion = {{"chunk_size": 0}}  # set where the model is made


def linear_ce_fusion_output_processor(
    *,
    hidden_states,
    output_layer,
    output_weight,
    runtime_gather_output,
    inference_context,
    context,
    **_,
):
    \"""Log-probs of the labels in `context`, from the decoder's output.\"""
    from megatron.core.parallel_state import (
        get_context_parallel_group,
        get_tensor_model_parallel_group,
    )

    weight = output_layer.weight if output_weight is None else output_weight
    tp_group = get_tensor_model_parallel_group()
    start = tp_group.rank() * weight.size(0)
    return from_parallel_hidden_states_to_logprobs(
        hidden_states,
        weight,
        runtime_gather_output,
        context,
        vocab_start_index=start,
        vocab_end_index=start + weight.size(0),
        inference_only=inference_context is not None and not output_layer.training,
        tp_group=tp_group,
        cp_group=get_context_parallel_group(),
        chunk_size=linear_ce_fusion["chunk_size"],
    )

There `TYPE_CHECKING` and `GPTModel` are used no more, and their imports go.

Where `{PATCH}` is imported and called, in its place:

from {{package}}.distributed.model_utils import linear_ce_fusion
linear_ce_fusion["chunk_size"] = policy_cfg["megatron_cfg"]["fused_linear_logprobs_chunk_size"]

Where the model is called, in place of `labels` and `{FLAG}`:

from {{package}}.distributed.model_utils import linear_ce_fusion_output_processor
additional_kwargs["output_processor"] = linear_ce_fusion_output_processor
additional_kwargs["output_processor_context"] = input_ids_cp_sharded

Without MTP every bit is the same. With it, from megatron-core 0.19 on, its layers train, which get no gradient today.
"""
NEMO_RL = Contract(
    package="nemo_rl",
    shims=(Shim("distributed/model_utils.py", COMPAT, {PATCH: RULE}, _GAINS, "rounding", recipe=_RECIPE),),
    words=(b"linear_ce_fusion",),
    knows_modules=False,
    private=(FORWARD, FLAG),
)


def flag_places(source: Source) -> list[ast.expr]:
    """Every place that gives, asks for or takes out the flag: a value by keyword, or the text of a key."""
    keywords = [node.value for node in source.every(ast.keyword) if node.arg == FLAG]
    return [*keywords, *(node for node in source.every(ast.Constant) if node.value == FLAG)]


def found_flags(exports: Exports) -> Iterator[tuple[str, list[ast.expr]]]:
    """The files with such places."""
    others = (path for path in exports.imports if path not in exports.definitions)  # which define what reads it
    saying = (path for path in others if FLAG.encode() in exports.repository.data(path))
    return ((path, flag_places(exports.repository.source(path))) for path in saying)


class NemoRl(ShimCodemod):
    """The patch and its flag become the shim and the hook's arguments."""

    name, title = "nemo-rl", "NeMo RL"
    rules = (
        Rule(
            "MCU706",
            "nemo-rl-linear-ce-fusion",
            "NeMo RL's linear CE fusion replaces `GPTModel.forward` with a copy",
            "The patch replaces the forward of every GPTModel of the process with a copy that knows neither "
            "`output_processor` nor MTP, and refuses context parallelism. The shim records the chunk size, and "
            "each call asks for log-probs through the hook.",
            versions="the hook exists since 0.18",
            seam="output",
        ),
    )
    contract, words = NEMO_RL, NEMO_RL.words
    examples = (
        Example(
            "MCU706",
            before=f"""
from nemo_rl.distributed.model_utils import {PATCH}


def setup(chunk_size):
    {PATCH}(chunk_size=chunk_size)
""",
            after=f"""
try:  # Megatron Core 0.18 and later: on its output_processor hook
    from {COMPAT} import (
        {PATCH},
    )
except ImportError:
    from nemo_rl.distributed.model_utils import (
        {PATCH},
    )


def setup(chunk_size):
    {PATCH}(chunk_size=chunk_size)
""",
        ),
    )
    covers = """
v0.6.0, v0.7.0 and commit 7ea279abf of 2026-08-22
"""
    changes = """
- The import of `patch_gpt_model_forward_for_linear_ce_fusion` tries `mcore_unpatch.compat.nemo_rl` first, and falls
  back to the old one. The function of that name there patches nothing.
- The flag `return_logprobs_for_linear_ce_fusion` stays: the shim reads it from each call.
- `unpatch migrate` also prints how to do without the package: one function on the hook, to the same bits.
"""
    applied = """
As for veRL, with the hashes of `codemods/fingerprints/nemo_rl.json`. The level is `rounding`: in fp32 results differ by
5e-7 and gradients by 1e-6, in bf16 by up to 4e-4 and 3e-2.
"""
    by_hand = """
- **The assertion that refuses context parallelism** is reported, not removed: the shim works with it. Check the
  labels under context parallelism before you lift it.
- **The assertion that refuses `overlap_param_gather`** stays; the shim says itself what it needs.
- **The numbers stay NeMo RL's.** `numbers="nemo_rl"` leaves out the MTP loss and MuP's scaling of the logits, and
  labels cross the borders of packed sequences, as in the patched forward. Without it the numbers are Megatron's
  own.
- **An fp32 head** (`output_layer.forward` replaced) is no part of the fused path, as before.
- `from_parallel_hidden_states_to_logprobs` stays in `model_utils.py`: it patches nothing. The shim has one of the
  same name.
- v0.6.0 reads `output_layer.weight`, which tied models do not have; with the shim they work.
"""

    def findings(self, project: Repository, known: Sequence[Finding]) -> Iterator[Finding | FileError]:
        """Every use of the patch function, and every line with the flag."""
        from mcore_unpatch.codemods.quote import finding_at
        from mcore_unpatch.codemods.shims.sightings import found

        exports, findings = found(NEMO_RL, project, known)
        yield from findings
        message = f"uses `{FLAG}`, which only a patch reads: {self.rules[0].summary}"
        for path, places in found_flags(exports):
            for node in {node.lineno: node for node in reversed(places)}.values():
                said = (FLAG, message, f'pass `**{KWARGS}(model, numbers="nemo_rl")` from `{COMPAT}`')
                yield finding_at(project.source(path), node, RULE, self.shape, self.rules[0].seam, said)
