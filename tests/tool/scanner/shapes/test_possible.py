"""Methods replaced on objects of unknown type, where the code works on Megatron's models: possible, counted apart."""

import pytest
from checking import check_noop, found_in

from mcore_unpatch.findings.finding import Finding

IMPORT = "import types\nimport torch\nfrom megatron.core import parallel_state\ndef new(self, *a): return a\n"


def only(source: str) -> Finding:
    (finding,) = found_in(source, possible=True)
    return finding


@pytest.mark.parametrize(
    "body",
    [
        "for name, module in model.named_modules():\n        if name.endswith('n'):\n            module.forward = new",
        "layer = getattr(model, 'mlp')\n    layer.forward = types.MethodType(new, layer)",
        "model.forward = new",
        "model.head.gating = types.MethodType(new, model.head)",
        "model.experts[0].forward = new.__get__(model.experts[0])",
        "type(model).sharded_state_dict = new",
        "model.__class__.gating = new",
        "model.state_dict = types.MethodType(new, model)",
    ],
)
def test_an_object_of_unknown_type(body: str) -> None:
    finding = only(f"{IMPORT}def patch(model):\n    {body}\n")
    assert finding.confidence == "possible"
    assert "possible, judging by the method `" in finding.message
    # A method of one class alone: what to override can be told.
    assert finding.verdict == ("steps" if "gating" in body else "keep")


def test_what_objects_hold_is_not_told_as_the_method_of_another_class() -> None:
    finding = only(f"{IMPORT}def patch(model):\n    model.head.activation_func = new\n")
    assert finding.target == "megatron.core.transformer.mlp.MLP.activation_func"
    assert "possible, judging by the attribute `activation_func`" in finding.message


@pytest.mark.parametrize(
    "source",
    [
        "def patch(model):\n    model.forward = model.other",
        "def patch(model):\n    model.name_of_ours = types.MethodType(new, model)",
        "def patch(model):\n    model.__setattr__ = types.MethodType(new, model)",
        "def patch(model):\n    if isinstance(model, torch.nn.Linear):\n        model.forward = new",
        "model = torch.nn.Linear(2, 2)\nmodel.forward = new",
        "torch.nn.Linear.forward = new",
        "class Mine:\n    def patch(self):\n        self.forward = new",
        "class Mine: ...\nMine.forward = new",
        "def helper(): ...\nhelper.forward = new",
        "def patch(config):\n    config.state_dict = new",
    ],
)
def test_not_even_possible(source: str) -> None:
    check_noop(f"{IMPORT}{source}\n", possible=True)


def test_not_in_a_test() -> None:
    check_noop({"tests/test_a.py": f"{IMPORT}def patch(model):\n    model.forward = new\n"}, possible=True)


@pytest.mark.parametrize("given, told", [("labels, logits", False), ("labels", True)])
def test_an_original_of_an_object_is_called_without_it(given: str, told: bool) -> None:
    finding = only(
        f"{IMPORT}def patch(convert):\n    model = convert()\n    original = model.compute_language_model_loss\n"
        f"    def ours(labels, logits):\n        return original({given})\n"
        "    model.compute_language_model_loss = ours\n"
    )
    assert ("does not pass `logits`" in finding.message) is told
