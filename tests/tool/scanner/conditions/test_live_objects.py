"""When does a patch run: marks that it leaves, and what objects and their methods say of a release."""

import pytest
from scanner.conditions.test_live import guarded


def test_a_mark_on_the_function_that_is_put_in_place() -> None:
    source = """
    def install():
        if getattr(GPTModel.forward, "_mine", False):
            return
        def new(self): ...
        new._mine = True
        GPTModel.forward = new
    """
    live = guarded(source).live
    assert (str(live), live.depends) == ("any", ())


def test_a_class_of_the_repository_speaks_for_itself() -> None:
    source = """
    class Own(GPTModel):
        def forward(self, output_processor=None):
            return super().forward(output_processor=output_processor)
    def install(model: Own):
        if "output_processor" in inspect.signature(model.forward).parameters:
            model._postprocess = f.__get__(model)
    """
    assert str(guarded(source).live) == "any"


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("getattr(args, 'fused', False)", "only if `getattr(args, 'fused', False)`"),
        ("not getattr(args, self.name, None)", "only if not `getattr(args, self.name, None)`"),
        ("not getattr(args, '_mine', False)", ""),
    ],
)
def test_a_flag_is_told_and_a_mark_is_not(test: str, said: str) -> None:
    live = guarded(f"def install(self, args):\n    if {test}:\n        GPTModel.forward = f\n").live
    assert live.depends == ((said,) if said else ())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("lambda context: context.args.fused", "only if `context.args.fused`"),
        ("is_fused", "only if `is_fused()`"),
    ],
)
def test_what_a_registry_asks_before_it_calls_a_function(asked: str, said: str) -> None:
    source = f"@register('name', condition={asked})\ndef install(context):\n    GPTModel.forward = f\n"
    assert guarded(source).live.depends == (said,)
