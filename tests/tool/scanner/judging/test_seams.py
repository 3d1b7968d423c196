"""Each patch is classified by what can replace it, and nothing is promised that does not hold."""

import pytest
from checking import BLOCK, CORE, GPT, HYBRID, MTP_LAYER, ROUTER, check_found, found_in

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

    def test_postprocess_that_computes_entropy(self) -> None:
        check_found(
            on_model(
                "def new(self, hidden_states, **kwargs):\n    return entropy(hidden_states)",
                "model._postprocess = new.__get__(model)",
            ),
            seam="output",
            rule="MCU102",
        )

    @pytest.mark.parametrize(
        "value",
        ["lambda hidden, *a, **k: (hidden, None)", "passthrough", "types.MethodType(passthrough, model.output_layer)"],
    )
    def test_lm_head_that_lets_hidden_states_through(self, value: str) -> None:
        check_found(
            on_model(
                "import types\ndef passthrough(self, hidden, *a, **k):\n    return hidden, None",
                f"model.output_layer.forward = {value}",
            ),
            target=f"{GPT}.output_layer.forward",
            seam="output",
            rule="MCU103",
        )

    def test_lm_head_that_gathers_and_casts_on_the_way(self) -> None:
        body = (
            "def captured(input_, weight=None, runtime_gather_output=None):\n    hidden = input_\n"
            "    hidden = gather_from_sequence_parallel_region(hidden)\n    hidden = hidden.to(weight.dtype)\n"
            "    return hidden, None"
        )
        check_found(on_model(body, "model.output_layer.forward = captured"), seam="output", rule="MCU103")

    def test_lm_head_that_still_projects(self) -> None:
        body = "def projected(input_, weight=None):\n    logits = linear(input_, weight)\n    return logits, None"
        check_found(on_model(body, "model.output_layer.forward = projected"), seam="none")

    def test_lm_head_swapped_for_the_identity(self) -> None:
        check_found(on_model("import torch", "model.output_layer = torch.nn.Identity()"), seam="output", rule="MCU103")

    def test_loss(self) -> None:
        check_found(
            on_model("def new(self, labels, logits): ...", "model.compute_language_model_loss = new"),
            seam="output",
            rule="MCU104",
        )

    def test_hybrid_model_has_no_hook_to_pass_it_to(self) -> None:
        finding = check_found(
            """
            from megatron.core.models.hybrid.hybrid_model import HybridModel
            def new(self, input_ids):
                return log_probs(input_ids)
            HybridModel.forward = new
            """,
            target=f"{HYBRID}.forward",
            seam="output",
        )
        assert finding.replacement is not None
        assert "HybridModel has no output hook" in finding.replacement


class TestSchedule:
    SOURCE = """
        from megatron.core.models.gpt import GPTModel
        def new(self, hidden_states, **kwargs):
            return log_probs(hidden_states)
        def plan(model: GPTModel):
            schedule_plan = model.build_schedule_plan(None, None, None)
            schedule_plan.post_process.forward_impl = new
            model._postprocess = new.__get__(model, GPTModel)
            return schedule_plan
    """

    def test_node_and_postprocess_beside_the_plan(self) -> None:
        findings = found_in(self.SOURCE)
        assert [(f.seam, f.rule) for f in findings] == [("schedule", "MCU301")] * 2
        assert all("build_schedule_plan" in (f.replacement or "") for f in findings)

    def test_plan_itself(self) -> None:
        check_found(f"{IMPORT}GPTModel.build_schedule_plan = print\n", seam="schedule", rule="MCU301")

    @pytest.mark.parametrize(("given", "seam"), [("labels", "schedule"), ("output_processor", "none")])
    def test_a_plan_that_takes_the_hook_is_about_something_else(self, given: str, seam: str) -> None:
        new = f"def new(self, {given}=None):\n    return Plan(self, {given})\n"
        check_found(f"{IMPORT}{new}GPTModel.build_schedule_plan = new\n", seam=seam)


class TestMtp:
    @pytest.mark.parametrize(
        ("method", "rule"), [("_get_embeddings", "MCU202"), ("_checkpointed_forward", "MCU203"), ("forward", "MCU204")]
    )
    def test_layer(self, method: str, rule: str) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel, new):\n"
            "    for layer in model.mtp.layers:\n"
            f"        layer.{method} = new\n",
            target=f"{MTP_LAYER}.{method}",
            seam="mtp",
            rule=rule,
        )

    def test_detach_names_the_field_and_its_release(self) -> None:
        finding = check_found(
            f"{IMPORT}def patch(model: GPTModel, new):\n    model.mtp.layers[0]._get_embeddings = new\n", seam="mtp"
        )
        assert finding.replacement is not None
        assert "mtp_detach_heads" in finding.replacement
        assert "0.19" in finding.replacement

    def test_postprocess_with_an_mtp_loss(self) -> None:
        check_found(
            on_model(
                "def new(self, hidden_states, **kwargs):\n    return mtp_loss(hidden_states)",
                "model._postprocess = new.__get__(model)",
            ),
            seam="mtp",
            rule="MCU201",
        )

    def test_loss_function(self) -> None:
        check_found(
            "from megatron.core.transformer import multi_token_prediction as mtp\nmtp.process_mtp_loss = print\n",
            seam="mtp",
            rule="MCU204",
        )

    def test_loss_function_where_the_model_imports_it(self) -> None:
        check_found("from megatron.core.models.gpt import gpt_model\ngpt_model.process_mtp_loss = print\n", seam="mtp")


class TestConfig:
    def test_field(self) -> None:
        finding = check_found(
            "from megatron.core.transformer.moe.router import TopKRouter\n"
            "def new(self, logits):\n    return self.router_replay.select(logits)\n"
            "TopKRouter.routing = new\n",
            target=f"{ROUTER}.routing",
            seam="config",
            rule="MCU401",
        )
        assert finding.replacement is not None
        assert "config.moe_enable_routing_replay" in finding.replacement
        assert "megatron-core 0." in finding.replacement

    @pytest.mark.parametrize(
        "said", ["replay_mask", "self.replay_backward_mask_list", "masked_replay", "ReplayTokenMask"]
    )
    def test_a_replay_of_single_tokens_is_not_promised(self, said: str) -> None:
        finding = check_found(
            "from megatron.core.transformer.moe.router import TopKRouter\n"
            f"def new(self, logits):\n    return self.router_replay.select(logits, {said})\nTopKRouter.routing = new\n",
            rule="MCU401",
        )
        assert finding.answer == "router-replay-masked"

    def test_module_spec(self) -> None:
        check_found(
            "from megatron.core.models.gpt import gpt_layer_specs as s\nclass Mine: ...\ns.SelfAttention = Mine\n",
            seam="config",
            rule="MCU402",
        )

    def test_function_that_makes_a_spec(self) -> None:
        check_found(
            "from megatron.core.models.gpt import gpt_layer_specs as s\ns.get_gpt_layer_local_spec = print\n",
            seam="config",
            rule="MCU402",
        )


class TestValueHead:
    @pytest.mark.parametrize("value", ["ValueHead(8)", "LinearForLastLayer(8, 1)", "torch.nn.Linear(8, 1)"])
    def test_output_layer(self, value: str) -> None:
        check_found(
            on_model("import torch", f"model.output_layer = {value}"),
            target=f"{GPT}.output_layer",
            seam="value-head",
            rule="MCU501",
        )


class TestNone:
    def test_forward_of_a_block(self) -> None:
        check_found(
            "from megatron.core.transformer.transformer_block import TransformerBlock\n"
            "TransformerBlock.forward = print\n",
            target=f"{BLOCK}.forward",
            seam="none",
            rule="MCU601",
            replacement=None,
        )

    @pytest.mark.parametrize(
        ("source", "rule"),
        [
            ("import megatron.core.utils as u\nu.get_model_config = print\n", "MCU602"),
            ("import megatron.core.utils as u\nsetattr(u, 'get_model_config', print)\n", "MCU602"),
            (on_model("", "model.decoder.forward = print"), "MCU603"),
            (on_model("", "model.embedding = Mine()"), "MCU604"),
            ("import sys\nsys.modules['megatron.core.utils'] = object()\n", "MCU605"),
            (
                "from mine import register_patch\nregister_patch('megatron.core.utils.get_model_config', print)\n",
                "MCU606",
            ),
        ],
    )
    def test_rules_by_shape(self, source: str, rule: str) -> None:
        check_found(source, seam="none", rule=rule)


class TestNotPromised:
    """Patches that stand at the output boundary and do something else there."""

    def test_postprocess_that_repairs_an_embedding(self) -> None:
        check_found(
            on_model(
                """
def new(self, *args, **kwargs):
    self.embedding.word_embeddings.weight = self.shared
    return original(self, *args, **kwargs)
original = GPTModel._postprocess
""",
                "model._postprocess = new.__get__(model)",
            ),
            target=f"{GPT}._postprocess",
            seam="none",
        )

    def test_postprocess_that_casts(self) -> None:
        check_found(
            on_model(
                """
original = GPTModel._postprocess
def new(self, hidden_states, *args, **kwargs):
    return original(self, hidden_states.float(), *args, **kwargs)
""",
                "model._postprocess = new.__get__(model)",
            ),
            target=f"{GPT}._postprocess",
            seam="none",
        )

    def test_forward_that_moves_its_inputs(self) -> None:
        check_found(
            on_model(
                "def new(self, input_ids, *args):\n    return GPTModel.forward(self, input_ids.cuda(), *args)",
                "model.forward = new.__get__(model)",
            ),
            target=f"{GPT}.forward",
            seam="none",
        )

    def test_lm_head_that_casts_its_input(self) -> None:
        check_found(
            on_model(
                """
def make(original_forward):
    def new(input_, *args, **kwargs):
        return original_forward(input_.float(), *args, **kwargs)
    return new
""",
                "model.output_layer.forward = make(model.output_layer.forward)",
            ),
            target=f"{GPT}.output_layer.forward",
            seam="hook",
        )

    def test_lm_head_with_adapters(self) -> None:
        check_found(
            on_model("", "model.output_layer = LoraLinear(model.output_layer)"),
            target=f"{GPT}.output_layer",
            seam="none",
        )


def test_every_rule_of_a_patch_has_a_seam_of_its_family() -> None:
    families = {"1": {"output"}, "2": {"mtp"}, "3": {"schedule"}, "4": {"config"}, "5": {"value-head"}, "6": {"none"}}
    for source in (
        TestSchedule.SOURCE,
        f"{IMPORT}GPTModel.forward = print\n",
        f"import {CORE}.utils as u\nu.get_model_config = print\n",
    ):
        for finding in found_in(source):
            assert finding.seam in families[finding.rule[3]]


def test_what_a_finally_does_is_a_hook_that_is_always_called() -> None:
    text = (
        "from megatron.core.transformer.mlp import MLP\ndef patch(mlp: MLP, lock):\n    original = mlp.forward\n"
        "    def new(*args):\n        lock.acquire()\n        try:\n            return original(*args)\n"
        "        {}:\n            lock.release()\n    mlp.forward = new\n"
    )
    for block, said in (("finally", True), ("except ValueError", False)):
        [finding] = found_in(text.format(block))
        assert ("always_call=True" in finding.steps[1]) is said
