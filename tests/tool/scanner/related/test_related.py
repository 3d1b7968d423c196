"""One finding per patch: backups and restores are lines of it; temporary patches are told apart."""

from checking import check_found


class TestRelatedLines:
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


class TestTemporary:
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
