"""One finding per patch: backups and restores are lines of it; temporary patches are told apart."""

import pytest
from checking import GPT, check_found, found_in, lines_by_role

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


class TestRelatedLines:
    def test_backup_and_restore_on_an_instance(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def fast(self): ...
            def patch(model: GPTModel):
                model.forward_backup = model.forward
                model.forward = fast.__get__(model, GPTModel)
            def unpatch(model: GPTModel):
                model.forward = model.forward_backup
            """,
            line=6,
            related={"backup": [5], "restore": [8]},
            temporary=False,
        )

    def test_backup_in_a_global_and_restore(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            _original_forward = GPTModel.forward
            def fast(self): ...
            def patch():
                GPTModel.forward = fast
            def unpatch():
                GPTModel.forward = _original_forward
            """,
            line=6,
            related={"backup": [3], "restore": [8]},
        )

    def test_restore_from_a_local_of_any_name(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def run(model: GPTModel, fast, *args):
                mine = model.forward
                model.forward = fast
                try:
                    return model(*args)
                finally:
                    model.forward = mine
            """,
            line=5,
            related={"backup": [4], "restore": [9]},
            temporary=True,
        )

    def test_what_a_function_puts_back_for_itself_restores_no_patch_of_another(self) -> None:
        lasting = found_in(
            """
            from megatron.core.models.gpt import GPTModel
            def run(model: GPTModel, fast, *args):
                mine = model.forward
                model.forward = fast
                try:
                    return model(*args)
                finally:
                    model.forward = mine
            def patch(model: GPTModel, fast):
                model.forward = fast
            """
        )
        assert [(one.line, lines_by_role(one).get("restore", [])) for one in lasting] == [(5, [9]), (11, [])]

    def test_a_restore_of_a_part_that_is_known_by_its_name_alone(self) -> None:
        found = found_in(
            """
            from megatron.core.models.gpt import GPTModel
            own = GPTModel.forward
            def new(self, *args, key=None):
                real = self.decoder.forward
                def with_key(*args):
                    return real(*args, key)
                self.decoder.forward = with_key
                try:
                    return own(self, *args)
                finally:
                    self.decoder.forward = real
            GPTModel.forward = new
            """,
            possible=True,
        )
        [part] = [one for one in found if one.line == 8]
        assert (lines_by_role(part)["restore"], part.temporary) == ([12], True)

    def test_a_static_method_kept_on_its_own_class(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def run(fast):
                GPTModel.shape_orig = staticmethod(GPTModel.set_input_tensor)
                GPTModel.set_input_tensor = fast
                try:
                    yield
                finally:
                    GPTModel.set_input_tensor = staticmethod(GPTModel.shape_orig)
            """,
            line=5,
            related={"restore": [9]},
            temporary=True,
        )

    def test_a_mark_is_no_backup(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def fast(self): ...
            def patch():
                if getattr(GPTModel, "_is_patched", False):
                    return
                GPTModel._original = GPTModel.forward
                GPTModel.forward = fast
                GPTModel._is_patched = True
            """,
            line=8,
            related={"backup": [7]},
        )

    def test_a_factory_that_may_return_the_original_is_no_restore(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def make(forward, on):
                if not on:
                    return forward
                def new(*args, **kwargs):
                    return forward(*args, **kwargs)
                return new
            def patch(model: GPTModel, on):
                model.forward = make(model.forward, on)
            """,
            line=10,
        )

    @pytest.mark.parametrize("statement", ["del model.forward", "delattr(model, 'forward')"])
    def test_deletion_restores_the_classes_method(self, statement: str) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel):\n"
            "    model.forward = print\n"
            "def unpatch(model: GPTModel):\n"
            f"    {statement}\n",
            line=3,
            related={"restore": [5]},
        )

    def test_restore_with_setattr(self) -> None:
        check_found(
            f"{IMPORT}original = GPTModel.forward\n"
            "setattr(GPTModel, 'forward', print)\n"
            "setattr(GPTModel, 'forward', original)\n",
            line=3,
            related={"backup": [2], "restore": [4]},
        )

    def test_backup_with_getattr(self) -> None:
        check_found(
            f"{IMPORT}def patch(model: GPTModel):\n    old = getattr(model, 'forward')\n    model.forward = print\n",
            related={"backup": [3]},
        )

    def test_two_patches_of_one_method_are_two_findings(self) -> None:
        findings = found_in(
            f"{IMPORT}def a(self): ...\n"
            "def b(self): ...\n"
            "if 1:\n"
            "    GPTModel.forward = a\n"
            "else:\n"
            "    GPTModel.forward = b\n"
        )
        assert [f.line for f in findings] == [5, 7]

    def test_a_backup_alone_is_no_finding(self) -> None:
        assert found_in(f"{IMPORT}original = GPTModel.forward\nGPTModel.forward_backup = GPTModel.forward\n") == []


class TestTemporary:
    def test_finally(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def run(model: GPTModel, fast):
                original = model.forward
                model.forward = fast
                try:
                    model(1)
                finally:
                    model.forward = original
            """,
            temporary=True,
            related={"backup": [4], "restore": [9]},
        )

    def test_finally_on_a_condition(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def run(model: GPTModel, fast):
                original = model.forward
                model.forward = fast
                try:
                    model(1)
                finally:
                    if original is not fast:
                        model.forward = original
            """,
            temporary=True,
            related={"backup": [4], "restore": [10]},
        )

    @pytest.mark.parametrize("decorator", ["contextlib.contextmanager", "pytest.fixture"])
    def test_generator(self, decorator: str) -> None:
        check_found(
            f"""
            import contextlib, pytest
            from megatron.core.models.gpt import GPTModel
            @{decorator}
            def fast_forward():
                original = GPTModel.forward
                GPTModel.forward = print
                yield
                GPTModel.forward = original
            """,
            temporary=True,
        )

    def test_context_manager_with_finally(self) -> None:
        check_found(
            """
            from contextlib import contextmanager
            from megatron.core.models.gpt import GPTModel
            @contextmanager
            def patched(model: GPTModel, fast):
                old, model.output_layer.forward = model.output_layer.forward, fast
                try:
                    yield
                finally:
                    model.output_layer.forward = old
            """,
            target=f"{GPT}.output_layer.forward",
            temporary=True,
        )

    @pytest.mark.parametrize(
        ("enter", "leave"), [("def __enter__", "def __exit__"), ("async def __aenter__", "async def __aexit__")]
    )
    def test_enter_and_exit(self, enter: str, leave: str) -> None:
        check_found(
            f"""
            from megatron.core.models.gpt import GPTModel
            class Patched:
                {enter}(self):
                    self.original = GPTModel.forward
                    GPTModel.forward = print
                {leave}(self, *exc):
                    GPTModel.forward = self.original
            """,
            temporary=True,
        )

    def test_exit_stack_callback(self) -> None:
        check_found(
            """
            from contextlib import ExitStack
            from megatron.core.models.gpt import GPTModel
            def run(fast):
                with ExitStack() as stack:
                    original = GPTModel.forward
                    GPTModel.forward = fast
                    stack.callback(setattr, GPTModel, "forward", original)
            """,
            temporary=True,
        )

    def test_a_twin_that_undoes_it_is_not_enough(self) -> None:
        check_found(
            f"{IMPORT}old = GPTModel.forward\n"
            "def on():\n"
            "    GPTModel.forward = print\n"
            "def off():\n"
            "    GPTModel.forward = old\n",
            temporary=False,
            related={"backup": [2], "restore": [6]},
        )

    def test_a_finally_that_undoes_something_else(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def run(model: GPTModel, fast):
                try:
                    model.forward = fast
                finally:
                    print("done")
            """,
            temporary=False,
        )


def test_patches_beside_each_other_are_no_flags_of_one_another() -> None:
    findings = found_in(f"{IMPORT}from mine import a, b\nGPTModel.forward = a\nGPTModel._postprocess = b\n")
    assert [finding.related for finding in findings] == [(), ()]
