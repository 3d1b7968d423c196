"""Lines that use Megatron, between two real releases: what is told of each in `uses.txt`, or that nothing is.

A case begins with `## what it is | two releases`, then the kind, the end of the name and the line that are told.
"""

from pathlib import Path

import pytest
from rooms import effects

NAMES = """
from megatron.core import parallel_state as mpu
from megatron.core.transformer.transformer_config import TransformerConfig
from dataclasses import dataclass
@dataclass
class Between(TransformerConfig):
    extra: int = 1
"""
TEXTS = (Path(__file__).parent / "uses.txt").read_text(encoding="utf-8").split("## ")[1:]
HEADS = [text.partition("\n") for text in TEXTS]
CASES = {head.split(" | ")[0]: (head.split(" | ")[1].split(), code) for head, _, code in HEADS}


@pytest.mark.parametrize("what", CASES)
def test_what_a_step_does_to_a_use(what: str) -> None:
    (old, new, *told), code = CASES[what]
    files = {"a.py": code, "names.py": NAMES}
    found = [one for one in effects(files, old, new) if one.releases == (new,)]
    said = [(one.kind.name, one.cause.name.endswith(told[1]), str(one.place.line)) for one in found if told]
    assert said == ([(told[0], True, told[2])] if told else found)
    assert not [one for one in effects(files, new, new) if len(one.releases) == 1]
