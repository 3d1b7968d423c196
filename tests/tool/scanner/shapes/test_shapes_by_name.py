"""Patches that name what they change by a string, a namespace or source text are found, once."""

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in


class TestSetattr:
    def test_on_a_class(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            setattr(GPTModel, "forward", lambda self: None)
            """,
            target=f"{GPT}.forward",
            shape="setattr",
        )

    def test_on_a_module(self) -> None:
        check_found(
            "import megatron.core.utils as u\nsetattr(u, 'get_model_config', print)\n",
            target=f"{CORE}.utils.get_model_config",
            shape="setattr",
        )

    def test_on_an_instance(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                setattr(model, "_postprocess", fast)
            """,
            target=f"{GPT}._postprocess",
            shape="setattr",
        )

    def test_name_in_a_constant(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            NAME = "forward"
            setattr(GPTModel, NAME, print)
            """,
            target=f"{GPT}.forward",
            shape="setattr",
        )

    def test_names_of_a_loop_are_a_patch_each(self) -> None:
        findings = found_in("""
            from megatron.core.models.gpt import GPTModel
            for name in ("forward", "_postprocess"):
                setattr(GPTModel, name, print)
        """)
        assert [(f.target, f.shape) for f in findings] == [
            (f"{GPT}._postprocess", "setattr"),
            (f"{GPT}.forward", "setattr"),
        ]

    def test_computed_name(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(prefix, fast):
                setattr(GPTModel, prefix + "process", fast)
            """,
            target=f"{GPT}.*",
            shape="setattr",
            confidence="likely",
        )

    def test_a_function_under_a_computed_name_is_no_state(self) -> None:
        source = "from megatron.core import parallel_state\ndef fn(): return 0\ndef put(name, old):\n"
        check_found(
            f"{source}    setattr(parallel_state, name, fn)\n", target=f"{CORE}.parallel_state.*", confidence="likely"
        )
        check_noop(f"{source}    setattr(parallel_state, name, old)\n")

    def test_object_setattr(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(model: GPTModel, fast):
                object.__setattr__(model, "forward", fast)
            """,
            target=f"{GPT}.forward",
            shape="setattr",
        )

    def test_helper_of_the_repository(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def override(owner, name, fn):
                setattr(owner, name, fn)
            def fast(self): ...
            override(GPTModel, "forward", fast)
            """,
            target=f"{GPT}.forward",
            shape="setattr",
            line=6,
        )

    def test_decorator_of_the_repository(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch_method(owner):
                def decorate(fn):
                    setattr(owner, fn.__name__, fn)
                    return fn
                return decorate
            @patch_method(GPTModel)
            def forward(self): ...
            """,
            target=f"{GPT}.forward",
            shape="setattr",
            line=8,
        )


class TestSysModules:
    def test_loop_that_rebinds_a_name(self) -> None:
        check_found(
            """
            import sys
            from megatron.core.transformer.multi_token_prediction import process_mtp_loss as original
            def replacement(): ...
            for module in list(sys.modules.values()):
                if getattr(module, "process_mtp_loss", None) is original:
                    module.process_mtp_loss = replacement
            """,
            target=f"{CORE}.transformer.multi_token_prediction.process_mtp_loss",
            shape="sys-modules",
            seam="mtp",
        )

    def test_loop_with_setattr_and_items(self) -> None:
        check_found(
            """
            import sys
            from megatron.core.utils import get_model_config
            def rebind(new):
                for name, module in sys.modules.items():
                    for attribute, value in list(vars(module).items()):
                        if value is get_model_config:
                            setattr(module, attribute, new)
            """,
            target=f"{CORE}.utils.get_model_config",
            shape="sys-modules",
        )

    def test_loop_by_name(self) -> None:
        check_found(
            """
            import sys
            def rebind(new):
                for name, module in sys.modules.items():
                    if name.startswith("megatron") and hasattr(module, "get_gpt_layer_local_spec"):
                        module.get_gpt_layer_local_spec = new
            """,
            shape="sys-modules",
            confidence="likely",
        )

    def test_a_module_put_in_place(self) -> None:
        check_found(
            "import sys, types\nsys.modules['megatron.core.fusions.fused_softmax'] = types.ModuleType('stub')\n",
            target=f"{CORE}.fusions.fused_softmax",
            shape="sys-modules",
        )

    def test_update(self) -> None:
        check_found(
            "import sys\nsys.modules.update({'megatron.core.fusions.fused_softmax': object()})\n",
            target=f"{CORE}.fusions.fused_softmax",
            shape="sys-modules",
        )

    @pytest.mark.parametrize("call", ["operator.setitem", "setitem"])
    def test_setitem(self, call: str) -> None:
        check_found(
            f"import operator, sys\nfrom operator import setitem\n{call}(sys.modules, '{CORE}.utils', object())\n",
            target=f"{CORE}.utils",
            shape="sys-modules",
        )

    def test_attribute_of_a_module_looked_up(self) -> None:
        check_found(
            "import sys\nsys.modules['megatron.core.utils'].get_model_config = print\n",
            target=f"{CORE}.utils.get_model_config",
        )

    @pytest.mark.parametrize(
        "statement",
        [
            "u.__dict__['get_model_config'] = print",
            "vars(u)['get_model_config'] = print",
            "u.__dict__.update(get_model_config=print)",
            "u.__dict__.update({'get_model_config': print})",
        ],
    )
    def test_dict_of_a_module(self, statement: str) -> None:
        check_found(
            f"import megatron.core.utils as u\n{statement}\n",
            target=f"{CORE}.utils.get_model_config",
            shape="sys-modules",
        )


class TestStringTarget:
    def test_register_call(self) -> None:
        check_found(
            """
            from mine import patches
            def fast(self): ...
            patches.register("megatron.core.models.gpt.gpt_model.GPTModel.forward", fast)
            """,
            target=f"{GPT}.forward",
            shape="string-target",
        )

    def test_decorator(self) -> None:
        check_found(
            """
            from mine import register_patch
            @register_patch("megatron.core.models.gpt.gpt_model.GPTModel.forward")
            def fast(self): ...
            """,
            target=f"{GPT}.forward",
            shape="string-target",
        )

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

    def test_re_exported_name(self) -> None:
        check_found(
            "from mine import patches\npatches.register('megatron.core.models.gpt.GPTModel.forward', print)\n",
            target=f"{GPT}.forward",
            shape="string-target",
        )

    def test_name_in_a_constant(self) -> None:
        check_found(
            """
            from mine import aspect
            TARGET = "megatron.core.transformer.mlp.MLP.forward"
            aspect.register_patch(TARGET, print)
            """,
            target=f"{CORE}.transformer.mlp.MLP.forward",
            shape="string-target",
        )

    def test_table(self) -> None:
        findings = found_in("""
            def a(): ...
            PATCHES = {
                "megatron.core.transformer.mlp.MLP.forward": a,
                "megatron.core.utils.get_model_config": a,
                "torch.nn.Linear.forward": a,
            }
        """)
        assert [(f.target, f.shape, f.line) for f in findings] == [
            (f"{CORE}.transformer.mlp.MLP.forward", "string-target", 4),
            (f"{CORE}.utils.get_model_config", "string-target", 5),
        ]


class TestSourceRewrite:
    def test_exec(self) -> None:
        check_found(
            """
            import inspect
            from megatron.core.models.gpt import GPTModel
            def patch():
                source = inspect.getsource(GPTModel.forward).replace("a", "b")
                exec(source, globals())
            """,
            target=f"{GPT}.forward",
            shape="source-rewrite",
        )

    def test_exec_and_assignment_are_one_patch(self) -> None:
        check_found(
            """
            import inspect
            from megatron.core.models.gpt import GPTModel
            def patch():
                source = inspect.getsource(GPTModel.forward).replace("a", "b")
                names = {}
                exec(source, names)
                GPTModel.forward = names["forward"]
            """,
            target=f"{GPT}.forward",
            shape="source-rewrite",
            line=8,
        )


def test_a_table_of_tables_in_a_class_that_patches() -> None:
    table = """
        from mine import f, g
        class PatchesManager:
            configs = {
                "a": [("megatron.core.utils.get_model_config", f), ("torch.nn.Linear.forward", g)],
                "b": (("megatron.core.transformer.mlp.MLP.forward", g),),
            }
    """
    found = [(finding.target, finding.line) for finding in found_in(table)]
    assert found == [(f"{CORE}.utils.get_model_config", 5), (f"{CORE}.transformer.mlp.MLP.forward", 6)]
    assert found_in(table.replace("PatchesManager", "Names")) == []
    pair = "from mine import f, g, wrap\nPATCHES = {'megatron.core.utils.get_model_config': (wrap(f, g), True)}\n"
    assert [finding.target for finding in found_in(pair)] == [f"{CORE}.utils.get_model_config"]


class TestTablesOfTables:
    @pytest.mark.parametrize(
        "table",
        [
            "{'mtp': [('megatron.core.utils.get_model_config', f)]}",
            "{'mtp': {'megatron.core.utils.get_model_config': f}}",
            "{'mtp': {'deep': [('megatron.core.utils.get_model_config', f)]}}",
        ],
    )
    def test_by_what_they_are_for(self, table: str) -> None:
        check_found(f"def f(): ...\nPATCHES = {table}\n", target=f"{CORE}.utils.get_model_config")

    def test_of_something_else(self) -> None:
        check_noop(
            "def f(): ...\nPATCHES = {'mtp': [('megatron.bridge.utils.x', f)], 'a': {'b': f}}\nimport megatron\n"
        )
