"""Instances are known by what the code says of them; a finding says how sure it is, and why."""

import pytest
from checking import GPT, MTP_LAYER, check_found

IMPORT = "from megatron.core.models.gpt import GPTModel\nfrom typing import Optional, Union, List\n"


@pytest.mark.parametrize("call", [".cuda()", ".to('cpu')", ".eval()", ".bfloat16()"])
def test_moved_after_construction(call: str) -> None:
    check_found(f"{IMPORT}model = GPTModel(None){call}\nmodel.forward = print\n", target=f"{GPT}.forward")


class TestIteration:
    def test_mtp_layers_of_an_unknown_model(self) -> None:
        check_found(
            """
            import megatron.core
            def patch(model, fast):
                for layer in model.mtp.layers:
                    layer.forward = fast
            """,
            target=f"{MTP_LAYER}.forward",
            confidence="likely",
        )
