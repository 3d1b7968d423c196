"""Patches that name what they change by a string, a namespace or source text are found, once."""

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in


class TestSetattr:
    def test_a_function_under_a_computed_name_is_no_state(self) -> None:
        source = "from megatron.core import parallel_state\ndef fn(): return 0\ndef put(name, old):\n"
        check_found(
            f"{source}    setattr(parallel_state, name, fn)\n", target=f"{CORE}.parallel_state.*", confidence="likely"
        )
        check_noop(f"{source}    setattr(parallel_state, name, old)\n")


class TestStringTarget:
    def test_a_name_that_is_the_word_for_a_patch(self) -> None:
        check_noop("""
            def register_patch(patch_id, phase=""): return lambda f: REGISTRY.append((patch_id, f)) or f
            @register_patch("megatron.core.models.gpt.gpt_model.GPTModel.forward", phase="start")
            def fast(self): ...
            @register_patch(patch_id="megatron.training.mlperf_logging")
            def log(self): ...
        """)
        check_found(
            """
            def register_patch(name, phase=""): return lambda f: REGISTRY.append((name, f)) or f
            @register_patch("megatron.core.models.gpt.gpt_model.GPTModel.forward", phase="start")
            def fast(self): ...
            """,
            target=f"{GPT}.forward",
            shape="string-target",
        )

    @pytest.mark.parametrize("shown", ["[Mine.forward, m.sharded_state_dict]", "(Mine.forward, sharded_state_dict)"])
    def test_a_class_and_a_list_of_its_methods(self, shown: str) -> None:
        name = "megatron.core.transformer.mlp.MLP"
        findings = found_in(f"from mine import *\nmanager.register_methods('{name}', {shown})\n")
        assert [one.target for one in findings] == [f"{name}.forward", f"{name}.sharded_state_dict"]
        check_found(f"from mine import *\nmanager.register_class('{name}', Mine)\n", target=name, shape="string-target")

    def test_a_class_behind_itself_is_that_class(self) -> None:
        """A registry finds the class by the first name, or nothing; a module that is called like its package stays."""
        mlp, optimizer = f"{CORE}.transformer.mlp.MLP", f"{CORE}.optimizer.optimizer.ChainedOptimizer"
        source = "from mine import patches\npatches.register('{}', print)\n"
        check_found(source.format(f"{mlp}.MLP.forward"), target=f"{mlp}.forward")
        check_found(source.format(f"{optimizer}.step"), target=f"{optimizer}.step")


class TestTablesOfTables:
    def test_of_something_else(self) -> None:
        check_noop(
            "def f(): ...\nPATCHES = {'mtp': [('megatron.bridge.utils.x', f)], 'a': {'b': f}}\nimport megatron\n"
        )
