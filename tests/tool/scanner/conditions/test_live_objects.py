"""When does a patch run: marks that it leaves, and what objects and their methods say of a release."""

import pytest
from scanner.conditions.test_live import guarded


def test_marks_that_the_file_leaves_are_not_there_at_first() -> None:
    source = """
    def install(model: GPTModel):
        if hasattr(model, "_forward_kept"):
            return
        model._forward_kept = model.forward
        model.forward = f.__get__(model)
    """
    live = guarded(source).live
    assert (str(live), live.depends) == ("any", ())


@pytest.mark.parametrize("value", ["0", "True", "args.layers"])
def test_what_another_object_is_given_is_no_mark(value: str) -> None:
    source = f"""
    def install(args, model: GPTModel):
        if not getattr(args, "layers", 0):
            return
        model.config.layers = {value}
        model.forward = f.__get__(model)
    """
    assert str(guarded(source).live) == "any"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("try:\n        import other\n    except Exception:\n        raise", ()),
        ("assert other", ()),
        ("if other:\n        sys.exit()", ("depends on `sys.flags.dev_mode`",)),
        ("with other:\n        sys.exit()", ("depends on `sys.flags.dev_mode`",)),
        ("raise ValueError('not allowed')", ()),
    ],
)
def test_what_leaves_on_an_error_alone_is_not_what_a_patch_depends_on(body: str, said: tuple[str, ...]) -> None:
    assert guarded(f"if sys.flags.dev_mode:\n    {body}\nGPTModel.forward = f\n").live.depends == said


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


def test_what_a_model_may_have_is_not_decided() -> None:
    source = """
    def install(model: GPTModel):
        if hasattr(model, "language_model"):
            model.forward = f.__get__(model)
    """
    assert str(guarded(source).live) == "any"


def test_a_method_of_the_object_that_is_patched() -> None:
    source = """
    import types
    def install(router):
        if not hasattr(router, "is_aux_loss_enabled"):
            router.is_aux_loss_enabled = types.MethodType(f, router)
    """
    assert str(guarded(source).live) == "<=0.13.1"


@pytest.mark.parametrize(
    ("patched", "asked", "live"),
    [
        ("routers[0]", "routers[0]", "<=0.13.1"),
        ("routers[0]", "routers[1]", "any"),
        ("routers[0]", "settings[0]", "any"),
        ("next(routers)", "next(settings)", "any"),
    ],
)
def test_what_another_object_has_says_nothing_of_the_one_that_is_patched(patched: str, asked: str, live: str) -> None:
    source = f"""
    import types
    def install(routers, settings):
        if not hasattr({asked}, "is_aux_loss_enabled"):
            {patched}.is_aux_loss_enabled = types.MethodType(f, None)
    """
    assert str(guarded(source).live) == live


def test_the_signature_of_an_object() -> None:
    source = """
    def supports(model):
        return {"output_processor"} <= set(inspect.signature(model.forward).parameters)
    def install(model: GPTModel):
        if list(inspect.signature(model.forward).parameters)[0] != "input_ids":
            return
        if supports(model):
            return
        model.forward = f.__get__(model)
    """
    assert str(guarded(source).live) == "<=0.17.1"


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
