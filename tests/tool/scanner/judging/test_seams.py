"""Each patch is classified by what can replace it, and nothing is promised that does not hold."""

from checking import check_found

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


def on_model(body: str, statement: str) -> str:
    """A module that patches `model` with the function `new`."""
    return f"{IMPORT}{body}\ndef patch(model: GPTModel):\n    {statement}\n"


class TestOutput:
    def test_forward_that_computes_log_probs(self) -> None:
        finding = check_found(
            on_model(
                "def new(self, input_ids, labels=None):\n    return log_probs(input_ids)",
                "model.forward = new.__get__(model)",
            ),
            seam="output",
            rule="MCU101",
        )
        assert finding.replacement is not None
        assert "output_processor" in finding.replacement
        assert "0.18" in finding.replacement

    def test_lm_head_that_gathers_and_casts_on_the_way(self) -> None:
        body = (
            "def captured(input_, weight=None, runtime_gather_output=None):\n    hidden = input_\n"
            "    hidden = gather_from_sequence_parallel_region(hidden)\n    hidden = hidden.to(weight.dtype)\n"
            "    return hidden, None"
        )
        check_found(on_model(body, "model.output_layer.forward = captured"), seam="output", rule="MCU103")

    def test_loss(self) -> None:
        check_found(
            on_model("def new(self, labels, logits): ...", "model.compute_language_model_loss = new"),
            seam="output",
            rule="MCU104",
        )
