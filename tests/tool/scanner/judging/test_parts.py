"""A module of unknown class that the function around the patch tells to be one that specs name."""

import pytest
from checking import found_in

SOURCE = """
    import types
    from megatron.core import parallel_state

    NAMES = {names}

    def new(self, x): ...

    def patch(module):
        if {asked} not in NAMES:
            raise ValueError(module)
        module.forward = types.MethodType(new, module)
    """


@pytest.mark.parametrize(
    ("names", "asked", "answer"),
    [
        ("{'TELinear', 'TERowParallelLinear'}", "type(module).__name__", "part-of-a-layer"),
        ("('TELinear',)", "module.__class__.__name__", "part-of-a-layer"),
        ("{'DistributedDataParallel'}", "type(module).__name__", ""),  # no spec names it
        ("{'TELinear'}", "module.label", ""),  # not the name of its class
        ("{'TELinear', 'output_layer'}", "type(module).__name__", ""),  # no spec names the head
    ],
)
def test_the_name_of_a_class_tells(names: str, asked: str, answer: str) -> None:
    [finding] = found_in(SOURCE.replace("{names}", names).replace("{asked}", asked), possible=True)
    assert finding.answer == answer
    assert finding.verdict == ("steps" if answer else "keep")
