"""Objects that are made, kept and marked in the file: fields, dictionaries, names that are computed."""

import pytest
from checking import CORE, GPT, check_found, check_noop

OPTIMIZER = f"{CORE}.optimizer.optimizer.MegatronOptimizer"
DISTRIBUTED = f"{CORE}.optimizer.distrib_optimizer.DistributedOptimizer"


class TestMade:
    """A function that another one makes is a function."""

    @pytest.mark.parametrize(
        "value", ["(lambda s: (lambda: s))(parts)", "make(parts)", "lambda: parts"], ids=["lambda", "factory", "plain"]
    )
    def test_possible(self, value: str) -> None:
        check_found(
            f"""
            from megatron.core.optimizer import clip_grads
            def make(parts):
                def only():
                    return parts
                return only
            def restrict(members, parts):
                for one in members:
                    one.get_parameters = {value}
            """,
            options={"possible": True},
            target=f"{OPTIMIZER}.get_parameters",
            confidence="possible",
        )

    def test_what_returns_data(self) -> None:
        check_noop(
            """
            from megatron.core.optimizer import clip_grads
            def make(parts):
                return sum(parts)
            def restrict(one, parts):
                one.get_parameters = make(parts)
            """,
            possible=True,
        )

    def test_a_class_of_another_library_s_module(self) -> None:
        check_noop(
            """
            import importlib, megatron.core
            def patch():
                module = importlib.import_module("megatron.bridge.models.vision")
                def forward(self): ...
                for name in ("A", "B"):
                    cls = getattr(module, name, None)
                    cls.forward = forward
            """,
            possible=True,
        )


class TestFields:
    """The default of a field of a dataclass."""

    SUBMODULES = f"{CORE}.transformer.moe.moe_layer.MoESubmodules"

    @pytest.mark.parametrize(
        "field",
        [
            "moe_layer.MoESubmodules.__dataclass_fields__['router']",
            "getattr(moe_layer.MoESubmodules, '__dataclass_fields__')['router']",
            "vars(moe_layer.MoESubmodules)['__dataclass_fields__']['router']",
        ][:2],
    )
    def test_found(self, field: str) -> None:
        check_found(
            f"""
            from megatron.core.transformer.moe import moe_layer
            class Router: ...
            field = {field}
            field.default = Router
            """,
            target=f"{self.SUBMODULES}.router",
            shape="class-attr",
        )

    def test_step_by_step(self) -> None:
        check_found(
            """
            import dataclasses
            from megatron.core.transformer.moe import moe_layer
            class Router: ...
            def install():
                fields = moe_layer.MoESubmodules.__dataclass_fields__
                if "router" in fields:
                    field = fields["router"]
                    field.default = Router
                    field.default_factory = dataclasses.MISSING
            """,
            line=9,
            target=f"{self.SUBMODULES}.router",
        )

    def test_of_another_class(self) -> None:
        check_noop("import megatron.core\nclass A: ...\nA.__dataclass_fields__['router'].default = A\n")


class TestOwnDictionary:
    """`self.__dict__[name] = ...` in a subclass goes past `nn.Module`, which would have refused it."""

    def test_found(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            class Model(GPTModel):
                def run(self, x):
                    def scattered(ids): ...
                    self.__dict__["embedding"] = scattered
            """,
            target=f"{GPT}.embedding",
            shape="submodule",
        )

    def test_a_name_of_its_own(self) -> None:
        check_noop(
            """
            from megatron.core.models.gpt import GPTModel
            class Model(GPTModel):
                def run(self, x):
                    self.__dict__["cache"] = print
                    self.embedding = build()
            """
        )


class TestNamesThatAreComputed:
    def test_the_last_part_of_a_path_that_callers_give(self) -> None:
        check_found(
            """
            from megatron.core.transformer.module import MegatronModule
            Models = list[MegatronModule]
            def head(hidden): return _hook(hidden, path="output_layer")
            def _hook(hidden, *, path):
                def hook(models: Models):
                    for model in models:
                        parent, parts = model, path.split(".")
                        for part in parts[:-1]:
                            parent = getattr(parent, part)
                        setattr(parent, parts[-1], Linear(hidden))
                return hook
            """,
            target=f"{GPT}.output_layer",
            confidence="likely",
        )


class TestMarks:
    """A helper that only notes that something was done is no patch."""

    def test_under_a_constant_name(self) -> None:
        files = {
            "guard.py": "_MARK = '_own_patches'\n"
            "def mark_patched(target, key):\n"
            "    applied = getattr(target, _MARK, None)\n"
            "    if applied is None:\n"
            "        applied = set()\n"
            "        setattr(target, _MARK, applied)\n"
            "    applied.add(key)\n",
            "use.py": "from guard import mark_patched\nfrom megatron.core.models.mamba.mamba_model import MambaModel\n"
            "mark_patched(MambaModel, 'own')\n",
        }
        check_noop(files)

    def test_data_under_a_name_that_is_computed(self) -> None:
        check_noop(
            """
            from megatron.core.models.gpt import GPTModel
            def patch_mark(target, key):
                setattr(target, f"_done_{key}", set())
            patch_mark(GPTModel, "x")
            """
        )

    def test_a_constant_name_of_megatrons(self) -> None:
        files = {
            "guard.py": "NAME = 'forward'\ndef patch(target, function):\n    setattr(target, NAME, function)\n",
            "use.py": "from guard import patch\nfrom megatron.core.models.gpt import GPTModel\n"
            "patch(GPTModel, print)\n",
        }
        check_found(files, target=f"{GPT}.forward", path="use.py")
