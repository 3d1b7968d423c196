"""Every shape a patch takes is found, once."""

import pytest
from checking import CORE, check_found, found_in


class TestModuleAttribute:
    @pytest.mark.parametrize(
        "head", ["import megatron.core\nps = 0\n", "from megatron.core import parallel_state as ps\n"]
    )
    @pytest.mark.parametrize(
        ("value", "verb"), [("mine", "adds"), ("traced({}.get_no_such_group)", "replaces"), ("group()", ""), ("[]", "")]
    )
    def test_a_name_that_no_release_has(self, head: str, value: str, verb: str) -> None:
        owner = "ps" if head.startswith("from") else "megatron.core.parallel_state"
        text = f"{head}from mine import mine, traced, group\n{owner}.get_no_such_group = {value.format(owner)}\n"
        said = [(one.target, one.message) for one in found_in({"a.py": text, "mine.py": "def mine(): ...\n"})]
        assert [one[0] for one in said] == [f"{CORE}.parallel_state.get_no_such_group"] * bool(verb)
        assert all(message.startswith(f"{verb} `parallel_state.get_no_such_group` in") for _, message in said)
        assert all(("is in no release" in message) == (verb == "replaces") for _, message in said)


class TestThroughACallExpression:
    def test_schedule_plan(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                schedule_plan = model.build_schedule_plan(None, None, None)
                schedule_plan.post_process.forward_impl = fast
            """,
            target=f"{CORE}.models.common.utils.PostProcessNode.forward_impl",
            shape="instance-attr",
            seam="schedule",
        )

    def test_what_a_wrapped_model_has(self) -> None:
        source = "from megatron.core.utils import get_attr_wrapped_model\ndef patch(model, f):\n    {}.forward = f\n"
        [finding] = found_in(source.format('get_attr_wrapped_model(model, "decoder")'))
        assert finding.target == f"{CORE}.transformer.transformer_block.TransformerBlock.forward"
        assert finding.message.endswith("likely, judging by the result of `get_attr_wrapped_model`")
        assert found_in(source.format('get_attr_wrapped_model(model, "nothing")')) == []


def test_what_a_subclass_does_to_itself_beside_a_patch() -> None:
    check_found(
        """
        from megatron.core.models.gpt import GPTModel
        class Mine(GPTModel):
            def __init__(self, config):
                super().__init__(config)
                self.output_layer = ValueHead(config)
                self.forward = self.fast
                setattr(self, "_postprocess", self.fast)
                self.__dict__["state_dict"] = self.fast
        GPTModel.forward = print
        """,
        line=10,
    )
