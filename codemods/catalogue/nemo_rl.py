"""NeMo RL: its linear cross-entropy fusion, a patch of every GPTModel and a flag of each call."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example
from mcore_unpatch.codemods.shims.contract import Contract, Shim, ShimCodemod
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Rule

if TYPE_CHECKING:
    from mcore_unpatch.codemods.shims.exports import Exports
    from mcore_unpatch.codemods.shims.move import Move

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


def flag_places(source: Source) -> list[ast.expr]:
    """Every place that gives, asks for or takes out the flag: a value by keyword, or the text of a key."""
    keywords = [node.value for node in source.every(ast.keyword) if node.arg == FLAG]
    return [*keywords, *(node for node in source.every(ast.Constant) if node.value == FLAG)]


def says_flag(exports: Exports, path: str) -> bool:
    """Whether a file uses the flag, and does not define what reads it."""
    return path not in exports.definitions and FLAG.encode() in exports.repository.data(path)


def found_flags(exports: Exports) -> Iterator[tuple[str, list[ast.expr]]]:
    """The files with such places."""
    saying = (path for path in exports.imports if says_flag(exports, path))
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
            before="""
from megatron.core import parallel_state


def log_probs(model, input_ids, **kwargs):
    kwargs["labels"] = input_ids
    kwargs["return_logprobs_for_linear_ce_fusion"] = True
    return model(input_ids, None, None, **kwargs)
""",
            after="""
from mcore_unpatch.compat.nemo_rl import linear_ce_fusion_kwargs
from megatron.core import parallel_state


def log_probs(model, input_ids, **kwargs):
    kwargs["labels"] = input_ids
    kwargs.update(linear_ce_fusion_kwargs(model, numbers="nemo_rl"))
    return model(input_ids, None, None, **kwargs)
""",
        ),
    )
    covers = """
v0.6.0, v0.7.0 and commit 7ea279abf of 2026-08-22
"""
    changes = """
- `patch_gpt_model_forward_for_linear_ce_fusion(chunk_size=...)` is imported from `mcore_unpatch.compat.nemo_rl`.
  The function of that name there patches nothing and records the chunk size.
- `kwargs["return_logprobs_for_linear_ce_fusion"] = True` becomes `kwargs.update(linear_ce_fusion_kwargs(model,
  numbers="nemo_rl"))`, with the model that is called with `**kwargs` in the same function. `labels` stays as it is.
- The patch function and its copy of the forward disappear from `nemo_rl/distributed/model_utils.py`, with the
  imports that only they used. If something still asks the module for the function, the shim is re-exported there.
"""
    applied = """
As for veRL, with the hashes of `codemods/fingerprints/nemo_rl.json`. The flag and the patch go together: while a
changed patch is left in place, the flag stays as well. Where the model that receives the arguments cannot be told, and
where the flag is given or read in another way, the line is left and reported with the steps to take there.
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
                said = (FLAG, message, f"pass `**{fusion_kwargs('model')}` from `{COMPAT}`")
                yield finding_at(project.source(path), node, RULE, self.shape, self.rules[0].seam, said)

    def migration(self) -> type[Move]:
        """All files together: while the patch stays, so does the flag."""
        from mcore_unpatch.codemods.shims.nemo_rl import NemoRlMove

        return NemoRlMove
