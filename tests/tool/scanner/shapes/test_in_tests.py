"""Tests: their findings are marked; fakes of whole modules, and what is set on them, are no patches."""

from checking import check_noop

FAKE = "import sys, types\nsys.modules['megatron.core'] = types.ModuleType('megatron.core')\n"
SETS = "from megatron.core import mpu\nmpu.get_context_parallel_rank = lambda: 0\n"


class TestFakes:
    def test_in_the_same_file(self) -> None:
        check_noop({"tests/test_a.py": FAKE + SETS})
