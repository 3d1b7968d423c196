"""Wrappers of a class's `forward` that are no hook for all modules: a person says for which modules they are."""

from planning import migrate

from mcore_unpatch.editing.edits import Options


def test_a_wrapper_of_a_class_has_steps() -> None:
    text = b"""from megatron.core.transformer.transformer_block import TransformerBlock

original = TransformerBlock.forward


def doubled(self, *args, **kwargs):
    return original(self, *args) * 2


TransformerBlock.forward = doubled
"""
    result = migrate({"pkg/wrapper.py": text}, Options(unsafe_fixes=True))
    assert result.changed == set()
    (remark,) = result.plan.remarks
    assert "1. Hooks are per module: where the model is built, `for module in model.modules()" in remark.text
    assert "isinstance(module, TransformerBlock)" in remark.text
    assert (
        "3. Remove line 10, and call the module where its `forward` is called directly: no hook runs there."
        in remark.text
    )


def test_a_wrapper_of_a_class_for_a_while_is_a_hook_for_a_while() -> None:
    text = b"""from megatron.core.transformer.transformer_block import TransformerBlock


def doubling(inputs):
    original = TransformerBlock.forward

    def doubled(self, *args, **kwargs):
        return original(self, *args) * len(inputs)

    TransformerBlock.forward = doubled
    try:
        yield
    finally:
        TransformerBlock.forward = original
"""
    (remark,) = migrate({"pkg/wrapper.py": text}, Options(unsafe_fixes=True)).plan.remarks
    assert "1. Hooks are per module: at this place, `for module in model.modules()" in remark.text
    assert "where the model is built" not in remark.text  # that is long before
