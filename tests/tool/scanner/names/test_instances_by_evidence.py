"""Instances known by where they come from: functions, bound replacements, well-known seams."""

import pytest
from checking import GPT, MTP_LAYER, check_found

IMPORT = "from megatron.core.models.gpt import GPTModel\nfrom typing import Optional, Union, List\n"


class TestBoundReplacements:
    def test_class_given_to_get(self) -> None:
        finding = check_found(
            f"{IMPORT}def fast(self): ...\ndef patch(model):\n    model.forward = fast.__get__(model, GPTModel)\n",
            target=f"{GPT}.forward",
        )
        assert "the class given to `__get__`" in finding.message

    def test_annotated_self(self) -> None:
        check_found(
            f"{IMPORT}def fast(self: GPTModel): ...\ndef patch(model):\n    model.forward = fast.__get__(model)\n",
            target=f"{GPT}.forward",
            confidence="likely",
        )


class TestWellKnownSeams:
    @pytest.mark.parametrize(
        ("statement", "target"),
        [
            ("model.output_layer.forward = fast", f"{GPT}.output_layer.forward"),
            ("self.model.output_layer.forward = fast", f"{GPT}.output_layer.forward"),
            ("output_layer.forward = fast", f"{GPT}.output_layer.forward"),
            ("model._postprocess = fast", f"{GPT}._postprocess"),
            ("layer._get_embeddings = fast", f"{MTP_LAYER}._get_embeddings"),
            ("mtp_layer._checkpointed_forward = fast", f"{MTP_LAYER}._checkpointed_forward"),
            ("model.output_layer = Head(8)", f"{GPT}.output_layer"),
        ],
    )
    def test_on_an_unknown_object(self, statement: str, target: str) -> None:
        finding = check_found(
            f"import megatron.core\ndef patch(self, model, layer, mtp_layer, output_layer, fast):\n    {statement}\n",
            target=target,
            confidence="likely",
        )
        assert "likely" in finding.message
