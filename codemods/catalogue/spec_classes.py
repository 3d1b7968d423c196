"""Methods of classes that specs name: a subclass has them, and the specs of the repository name that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.changes import Change
from mcore_unpatch.codemods.codemod import (
    AddImport,
    Codemod,
    Elsewhere,
    Example,
    Fix,
    Left,
    Match,
    Note,
    Settles,
)
from mcore_unpatch.codemods.seams.specs.edits import naming, writing
from mcore_unpatch.codemods.seams.specs.patch import ClassPatch, gone_with
from mcore_unpatch.codemods.seams.specs.places import leaf_of
from mcore_unpatch.editing.source import Source
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import api

if TYPE_CHECKING:
    pass

_SHAPES = ("class-attr", "setattr", "module-attr")


class SpecClasses(Codemod):
    """The patch becomes a subclass, and specs name it where they are made."""

    name, title = "spec-classes", "Classes that specs name"
    answers = ("MCU402",)
    does = "names a subclass in the specs"
    examples = (
        Example(
            "MCU402",
            before="""
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.attention import SelfAttention

original = SelfAttention.forward


def scaled_forward(self, hidden_states, *args, **kwargs):
    return original(self, hidden_states * 2, *args, **kwargs)


SelfAttention.forward = scaled_forward


def model_provider(config):
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=True)
    return GPTModel(config, spec, vocab_size=128, max_sequence_length=64)
""",
            after="""
from mcore_unpatch.compat import with_classes
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.transformer.attention import SelfAttention

original = SelfAttention.forward


def scaled_forward(self, hidden_states, *args, **kwargs):
    return original(self, hidden_states * 2, *args, **kwargs)


class PatchedSelfAttention(SelfAttention):
    \"\"\"Megatron's own with another `forward`, for specs to name.\"\"\"

    forward = scaled_forward


def model_provider(config):
    spec = with_classes(
        get_gpt_decoder_block_spec(config, use_transformer_engine=True),
        {SelfAttention: PatchedSelfAttention},
        needed=False,
    )
    return GPTModel(config, spec, vocab_size=128, max_sequence_length=64)
""",
            unsafe=True,
        ),
    )
    covers = """
methods of a class that specs name, put on the class by plain assignments or `setattr` of one module or one function of
it, and a subclass of the repository's own under the name of Megatron's in a module that makes specs
"""
    changes = """
- A subclass comes where the patch was, with its methods. The function that installed them goes, with its calls.
- Specs of the repository's own that name the class name the subclass.
- A call of a function of Megatron's that makes specs stands in `with_classes`, which names the subclass in what it
  gives. `needed=False`: for some options that may be another class, and the patch had no effect then either.
"""
    applied = """
With `--unsafe-fixes`, all places or none. Megatron has the class from specs alone on every release that is judged for,
and compares it with nothing that the repository leads to; no class that derives from it stands in these specs; the
patch is made unconditionally and never taken back; the repository makes the specs itself, and does nothing else with
the class than ask for it with `isinstance`, annotate with it and read its members.
"""
    by_hand = """
- **A process that built a model without the patch** has the subclass now: the specs name it for all.
- **Specs that another package makes** keep Megatron's own class.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """All classes of the repository, with the first finding that is rewritten: they may share a spec."""
        situation, bench = match.situation, match.situation.files
        if _subject(situation.finding) is None:
            return
        if SpecClasses not in bench.known:
            findings = [one for one in situation.open if _subject(one) and one.path.endswith(".py")]
            by_class: defaultdict[tuple[str, str], list[Finding]] = defaultdict(list)
            for finding in findings:
                by_class[_subject(finding) or ("", "")].append(finding)
            swaps = [ClassPatch(situation, cls, module, some) for (cls, module), some in by_class.items()]
            for swap in swaps:
                swap.why_not = next(swap.reasons(), "")
            twice = [swap for swap in swaps if sum(one.cls == swap.cls and not one.why_not for one in swaps) > 1]
            for swap in twice:
                swap.why_not = swap.why_not or f"`{leaf_of(swap.cls)}` is changed in several ways"
            together = [one for one in swaps if not one.why_not]
            if why := gone_with(bench, together).why_not:
                for swap in (one for one in together if one.installer):
                    swap.why_not = why
            bench.known[SpecClasses] = swaps
        swaps = bench.known[SpecClasses]
        mine = next(swap for swap in swaps if situation.finding in swap.findings)
        if mine.why_not:
            yield Left(mine.why_not)
            return
        good = [swap for swap in swaps if not swap.why_not]
        for at, change in (*writing(bench, good), *naming(bench, good)):
            here = at is source or not isinstance(change, Change | AddImport)
            yield change if here else Elsewhere(at, change)  # type: ignore[arg-type]
        yield Note("specs that are made here name the subclass in every process, also where the patch was not made")
        yield Note("specs that another package makes name Megatron's own class")
        yield Settles([finding for one in good for finding in one.findings])


def _subject(finding: Finding) -> tuple[str, str] | None:
    """The class that a finding changes, and the module in which only its name was replaced; None for another patch."""
    owner, _, _ = finding.target.rpartition(".")
    holder, symbol = api.lookup(owner), api.lookup(finding.target)
    if finding.rule != "MCU402" or finding.shape not in _SHAPES or holder is None:
        return None
    if holder.kind == "class":
        return holder.name, ""
    return (symbol.name, holder.name) if symbol is not None and symbol.kind == "class" else None
