"""Trainers that compute log-probs from logits: their functions are imported from the shims of the same names.

Such a use is no patch. The shims give real logits to the trainer's own function, so that an import alone changes no
number; what saves the memory is `DeferredHead` on the model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from mcore_unpatch.codemods.codemod import COMPAT, ByHand, Codemod, Example, Match, MoveImport
from mcore_unpatch.codemods.syntax import bound_by_import, module_of
from mcore_unpatch.editing.edits import Repository
from mcore_unpatch.editing.source import Source
from mcore_unpatch.errors import FileError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Rule
from mcore_unpatch.repository.paths import is_test

Homes = Mapping[str, Sequence[str]]
_MILES = "miles.backends.training_utils"
_AREAL = ("areal.utils.functional", "areal.utils.functional.vocab_parallel")
_UNLESS_CRITIC = '`if role != "critic": attach(model, DeferredHead())`'
_OWN_FORK = "has a Megatron without the hook: nothing is rewritten for it, since importing the shim there raises."


class LogitsCaller(Codemod):
    """What the trainers have in common: each declares its functions, where they stand, and where its model is built."""

    code: ClassVar[str]  # of its one rule
    homes: ClassVar[Homes]  # of each function, the modules that have it
    attach_at: ClassVar[str]  # where `DeferredHead` is attached, and what else the trainer needs then
    shape = "offer"
    safety = "safe"
    applied = """
The rule is off unless selected, because nothing is wrong: `unpatch migrate --select MCU75`. Where the repository
runs a megatron-core before 0.18 nothing is written, and the message names it: see it with `--target-mcore 0.19`.

- `safe`: imports in files that are for Megatron alone, told by their path or by an import of Megatron at their top.
  Every number stays: real logits go to the function they went to.
- With `--unsafe-fixes`: imports in files that other backends use too, which then need megatron-core.

What stays on real logits goes on as before; what is given lazy logits and cannot work with them raises a TypeError
that says what to use. Tests are left, as they are about the trainer's own functions.
"""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        cls.words = tuple(name.encode() for name in cls.homes)
        names = ", ".join(f"`{name}`" for name in cls.homes)
        cls.covers = f"imports of {names} in the files of {cls.title}'s Megatron backend and in what these import"
        shim = f"`{COMPAT}.{cls.name}`"
        cls.changes = f"- The functions are imported from {shim}, which gives real logits to {cls.title}'s own."
        home, name = next((home, name) for name, (home, *_) in cls.homes.items() if not home.startswith("megatron."))
        use = f"from {{}} import {name}\n\n\ndef log_probs(logits, labels):\n    return {name}(logits, labels)"
        cls.examples = (Example(cls.code, before=use.format(home), after=use.format(f"{COMPAT}.{cls.name}")),)
        cls.by_hand = f"- **Attach** `DeferredHead` where the policy is built. {cls.attach_at}{cls.by_hand}"
        cls.rules = (
            Rule(
                cls.code,
                f"{cls.name}-logits",
                f"{cls.title}'s log-probs and entropy are computed from logits",
                "Nothing is wrong here, and the rule is off unless selected. The logits, their softmax and its "
                f"gradient are what runs out of memory first. The functions of {shim} have the same names and "
                f"arguments, give real logits to {cls.title}'s own, and need none after `attach(model, "
                "DeferredHead())`.",
                versions="the hook exists since 0.18",
                seam="output",
            ),
        )

    def find(self, source: Source) -> Iterator[Match]:
        """Imports of the functions that the file uses itself; tests are about the trainer's own."""
        imports = {node: names for node in source.every(ast.ImportFrom) if (names := self._names(source, node))}
        if is_test(source.path) or all((node.module or "").startswith("megatron.") for node in imports):
            return
        for node, names in imports.items():
            said, alone = ", ".join(f"`{name}`" for name in names), len(names) == 1
            message = f"uses {said}, which {'takes' if alone else 'take'} logits"
            instead = f"import {'it' if alone else 'them'} from `{COMPAT}.{self.name}`"
            target = f"{node.module or ''}.{names[0]}".lstrip(".")
            yield Match(node, self.code, target, message, instead, "safe" if _is_megatrons(source) else "unsafe")

    def fix(self, source: Source, match: Match) -> Iterator[MoveImport | ByHand]:
        """The import from the shim."""
        assert isinstance(match.node, ast.ImportFrom)
        yield MoveImport(match.node, frozenset(self._names(source, match.node)), f"{COMPAT}.{self.name}")
        yield ByHand(f"Attach `DeferredHead` from `{COMPAT}` once, or the logits are still made. {self.attach_at}")

    def findings(self, project: Repository, known: Sequence[Finding]) -> Iterator[Finding | FileError]:
        """Only what Megatron's side of the trainer uses: other backends have real logits, and maybe no Megatron."""
        uses = list(super().findings(project, known))
        reached = _used_by_megatron(project) if uses else set()
        yield from (use for use in uses if not isinstance(use, Finding) or use.path in reached)

    def _names(self, source: Source, node: ast.ImportFrom) -> list[str]:
        """The functions that a statement imports and the file uses; what is only passed on stays."""
        if not any(alias.name in self.homes for alias in node.names):
            return []
        module, used = f".{module_of(source, node)}", {name.id for name in source.every(ast.Name)}
        return [
            alias.name
            for alias in node.names
            if bound_by_import(alias, node) in used
            and any(module.endswith(f".{home}") for home in self.homes.get(alias.name, ()))
        ]


def _is_megatrons(source: Source) -> bool:
    """Whether a file is for Megatron alone: its path says so, or it imports Megatron whenever it is imported."""
    modules = [
        name
        for node in source.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    ]
    return "megatron" in source.path.lower() or any(f"{module}.".startswith("megatron.") for module in modules)


def _used_by_megatron(project: Repository) -> set[str]:
    """The files that are for Megatron alone, and what they import, and so on."""
    sources = (project.readable(path) for path in project.paths)
    reached = {source.path for source in sources if source is not None and _is_megatrons(source)}
    waiting = list(reached)
    while waiting:
        new = {path for path in project.imported(waiting.pop()) if path in project.paths} - reached
        reached |= new
        waiting += new
    return reached


class Slime(LogitsCaller):
    """The functions of `mcore_unpatch.compat.slime`."""

    name, title, code = "slime", "slime", "MCU751"
    homes: ClassVar[Homes] = {
        "calculate_log_probs_and_entropy": ("slime.utils.ppo_utils",),
        "get_log_probs_and_entropy": ("slime.backends.megatron_utils.loss",),
        "get_label_token_log_probs_from_vocab_parallel_logits": ("slime.backends.megatron_utils.server.logprob_utils",),
    }
    attach_at = f"In `megatron_utils/model.py`, behind `setup_model_and_optimizer(args, role)`: {_UNLESS_CRITIC}."
    by_hand = f"""
- **Upgrade first.** slime's image {_OWN_FORK}
- **Rows of prompts.** The calls in `loss.py` run slime's own `get_log_probs_and_entropy`, which computes them. Call the
  one of `mcore_unpatch.compat.slime` there (`from mcore_unpatch.compat import slime`) to leave them out.
- **The server** (`server/logprob_utils.py`) defines its function for label tokens itself: call that of the shim.
"""


class Miles(LogitsCaller):
    """The functions of `mcore_unpatch.compat.miles`."""

    name, title, code = "miles", "miles", "MCU752"
    homes: ClassVar[Homes] = {
        "calculate_log_probs_and_entropy": (f"{_MILES}.loss_hub.math_utils",),
        "get_log_probs_and_entropy": (f"{_MILES}.loss_hub.logit_processors", f"{_MILES}.loss"),
    }
    attach_at = (
        f"In `megatron_utils/model.py`, behind `setup_model_and_optimizer(args, role)`: {_UNLESS_CRITIC}. Then "
        "`checkpoint(func, ...)` in `training_utils/loss.py` needs `use_reentrant=False`."
    )
    by_hand = f"""
- **Upgrade first.** miles' image {_OWN_FORK}
- **The FSDP backend** shares `training_utils/loss_hub` with Megatron's. Once its files import the shim, FSDP needs an
  installed megatron-core 0.18 or later as well: that is why these imports take `--unsafe-fixes`.
- **`true_on_policy_mode`** needs whole 16-bit logits: do not attach there.
"""


class Roll(LogitsCaller):
    """The functions of `mcore_unpatch.compat.roll`."""

    name, title, code = "roll", "ROLL", "MCU753"
    homes: ClassVar[Homes] = {
        "vocab_parallel_cross_entropy": ("megatron.core.tensor_parallel.cross_entropy",),
        "vocab_parallel_entropy": ("roll.third_party.megatron.tensor_parallel",),
        "vocab_parallel_logprobs": (
            "mcore_adapter.parallel_functions",
            "mcore_adapter.parallel_functions.vocab_parallel",
        ),
    }
    attach_at = (
        "In `megatron_strategy.py`, behind both `self.models_unwrapped = self.model.get_models()`, write "
        "`attach(self.models_unwrapped, DeferredHead())`, but not for a model with a value head. Then the stand-in of "
        "an empty sample is `single_output_tensor.new_zeros(new_shape)`, and `op_compute_topk_logits` and "
        "`op_compute_gather_by_teacher_indices` return what `mcore_unpatch.compat.roll` has by these names."
    )
    by_hand = """
- **`patch_mtp_functions()`** replaces `GPTModel.forward` and `_postprocess`: `attach` refuses such a model until that
  is gone. `unpatch scan` lists the patches.
- **mcore_adapter's own trainers**, such as the one for DPO, build their models themselves: attach there as well.
"""


class Areal(LogitsCaller):
    """The functions of `mcore_unpatch.compat.areal`."""

    name, title, code = "areal", "AReaL", "MCU754"
    homes: ClassVar[Homes] = {
        "gather_logprobs": _AREAL,
        "gather_logprobs_entropy": _AREAL,
        "unpad_logits": ("areal.utils.data",),
    }
    attach_at = (
        "In `megatron_engine.py`, behind `self.model = _MegatronModelList(models)`: `if not self.config.is_critic: "
        "attach(self.model, DeferredHead())`. Then `vocab_min_logits, vocab_max_logits = "
        "get_vocab_min_max_logits(output)`, from `mcore_unpatch.compat.areal`, takes the place of the two lines that "
        "read them from the logits."
    )
    by_hand = """
- **Upgrade first**: AReaL pins megatron-core 0.17.0. The shim cannot be imported there, so not even an import is
  rewritten before `pyproject.toml` asks for 0.18 or later.
- **`areal/models/tree_attn/functional.py`** is shared with the FSDP and Archon engines. Once it imports the shim, they
  need an installed megatron-core 0.18 or later as well: that is why this import takes `--unsafe-fixes`.
- **The vocabulary statistics** are those of the whole vocabulary then, and take a pass of their own over it with the
  torch backend: drop them if nobody reads them.
"""
