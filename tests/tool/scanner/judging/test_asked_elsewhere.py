"""A patch that uses Megatron in a way that raises, where another patch of the repository may be what is reached."""

from __future__ import annotations

import pytest
from checking import found_in

from mcore_unpatch.findings.finding import Finding

CALLS = """
    from megatron.core import utils
    from megatron.core.models.gpt.gpt_model import GPTModel

    def forward(self, input_ids, *args, **kwargs):
        return utils.get_model_config(self, input_ids)

    GPTModel.forward = forward
"""
READS = CALLS.replace("utils.get_model_config(self, input_ids)", "enums.Fp8Recipe.blockwise").replace("utils", "enums")
IMPORTS = CALLS.replace("    from", "    from megatron.core.transformer.moe.experts import GroupedMLP\n    from", 1)
OURS = "from megatron.core import enums, utils\ndef mine(model, more): ...\nutils.get_model_config = mine\n"
GROUPED = "from megatron.core.transformer.moe import experts\nexperts.GroupedMLP = mine\n"
WRAPS = """
    from megatron.core import utils

    def wrapped(original):
        def mine(*args):
            return original(*args)
        return mine

    utils.get_model_config = wrapped(utils.get_model_config)
"""
FOR_A_WHILE = """
    from contextlib import contextmanager
    from megatron.core import utils

    @contextmanager
    def ours(mine):
        before = utils.get_model_config
        utils.get_model_config = mine
        try:
            yield
        finally:
            utils.get_model_config = before
"""
REACHED = "b.py:3 replaces `{}`, which may be what is reached"


def judged(patch: str, other: str, path: str = "b.py") -> Finding:
    stack = {"requirements.txt": f"megatron-core=={'0.12.1' if patch is READS else '0.19.2'}\n"}
    [finding] = [one for one in found_in({"a.py": patch, path: other, **stack}) if one.path == "a.py"]
    return finding


@pytest.mark.parametrize(
    ("patch", "other", "path", "effect"),
    [
        (CALLS, OURS, "b.py", "may_break"),
        (CALLS, "", "b.py", "breaks"),
        (CALLS, OURS, "tests/test_b.py", "breaks"),
        (CALLS, OURS.replace("get_model_config", "get_attr_wrapped_model"), "b.py", "breaks"),
        (CALLS, WRAPS, "b.py", "breaks"),  # which calls the original with the same
        (CALLS, FOR_A_WHILE, "b.py", "breaks"),
        (READS, OURS.replace("utils.get_model_config", "enums.Fp8Recipe"), "b.py", "may_break"),
        (READS, OURS, "b.py", "breaks"),
        (IMPORTS, f"{OURS}{GROUPED}", "b.py", "breaks"),  # before anything is called
    ],
)
def test_what_another_file_replaces_may_be_what_is_reached(patch: str, other: str, path: str, effect: str) -> None:
    finding = judged(patch, other, path)
    assert finding.effect == effect
    said = REACHED.format("Fp8Recipe" if patch is READS else "get_model_config")
    assert (said in finding.message) is (finding.assessment.overridden == said) is (effect == "may_break")


def test_one_of_two_that_is_megatrons_own_breaks() -> None:
    both = CALLS.replace("        return", "        utils.ensure_divisibility(1)\n        return")
    assert judged(both, OURS).effect == "breaks"
