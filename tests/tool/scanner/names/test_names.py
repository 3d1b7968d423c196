"""What is patched is resolved, not guessed from spelling: imports, re-exports, aliases, subclasses."""

import pytest
from checking import CORE, check_found, check_noop


@pytest.mark.parametrize("nearer", ["from mine import GPTModel\n", "GPTModel = mine()\n", "def patch(GPTModel):\n    "])
def test_a_name_that_the_file_binds_is_not_that_of_a_star(nearer: str) -> None:
    check_noop(f"from megatron.core.models.gpt.gpt_model import *\n{nearer}GPTModel.forward = print\n")


class TestReExportsByMegatron:
    def test_module_of_a_package(self) -> None:
        check_found(
            "from megatron.core import mpu\nmpu.get_tensor_model_parallel_rank = print\n",
            target=f"{CORE}.parallel_state.get_tensor_model_parallel_rank",
        )


def test_a_class_that_only_ends_like_megatrons() -> None:
    check_noop("from mcore_adapter.models import GPTModel\nGPTModel.forward = print\n")
