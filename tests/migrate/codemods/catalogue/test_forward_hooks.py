"""Wrappers of a module's `forward`: which become a forward hook, and that this does what the wrapper did."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from planning import migrate

from mcore_unpatch.editing.edits import Options

HEAD = "from functools import wraps\n\nfrom megatron.core.transformer.transformer_layer import TransformerLayer\n\n\n"
PLAIN = """def use(layer: TransformerLayer, log):
    original = layer.forward

    def wrapper(*args, **kwargs):
        out = original(*args, **kwargs)
        log.append(out)
        return out * 2

    layer.forward = wrapper
"""
NAMED = """def use(layer: TransformerLayer, log):
    # the adapter
    original = layer.forward

    @wraps(original)
    def wrapper(hidden, scale, *rest, **named):
        \"\"\"Twice.\"\"\"
        first, second = original(hidden, scale, *rest, **named)
        # by what came in
        log.append(scale)
        if scale > 1:
            return first * scale, second
        else:
            return first + hidden, second

    layer.forward = wrapper  # type: ignore[method-assign]
"""
BECOMES = {
    PLAIN: """def use(layer: TransformerLayer, log):
    def wrapper(_module, _args, out):
        log.append(out)
        return out * 2

    layer.register_forward_hook(wrapper)
""",
    NAMED: """def use(layer: TransformerLayer, log):
    def wrapper(_module, rest, named, outputs):
        \"\"\"Twice.\"\"\"
        hidden = rest[0] if rest else named["hidden"]
        scale = rest[1] if len(rest) > 1 else named["scale"]
        first, second = outputs
        # by what came in
        log.append(scale)
        if scale > 1:
            return first * scale, second
        else:
            return first + hidden, second

    # the adapter
    layer.register_forward_hook(wrapper, with_kwargs=True)
""",
}


def became(code: str, **others: str) -> str:
    """The file after a migration, without its imports."""
    files = {"pkg/m.py": f"{HEAD}{code}".encode()}
    files |= {f"{name.replace('__', '/')}.py": text.encode() for name, text in others.items()}
    text = migrate(files, Options(unsafe_fixes=True)).files["pkg/m.py"].decode()
    return text[text.index("def use") :] if text.count("def use") == 1 else text


class Layer(torch.nn.Module):
    """One or two outputs."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.linear, self.outputs = torch.nn.Linear(3, 3), outputs

    def forward(self, hidden: torch.Tensor, scale: float = 1.0) -> Any:
        out = self.linear(hidden) * scale
        return out if self.outputs == 1 else (out, None)


def run(code: str, outputs: int) -> list[Any]:
    """What is logged and computed, with all gradients."""
    space: dict[str, Any] = {}
    exec(f"from functools import wraps\n{code.replace(': TransformerLayer', '')}", space)
    torch.manual_seed(1)
    layer, log, hidden = Layer(outputs), list[Any](), torch.ones(2, 3, requires_grad=True)
    space["use"](layer, log)
    for out in (layer(hidden, 2.0), layer(hidden=hidden, scale=0.5)):
        value = out if outputs == 1 else out[0]
        torch.autograd.backward(value.sum())
        log.append(value.detach())
    return [*log, hidden.grad, *(parameter.grad for parameter in layer.parameters())]


@pytest.mark.parametrize(("before", "after"), BECOMES.items(), ids=["plain", "named"])
def test_a_wrapper_becomes_a_hook_that_does_the_same(before: str, after: str) -> None:
    assert became(before) == after
    outputs = 2 if "second" in before else 1
    for old, new in zip(run(before, outputs), run(after, outputs), strict=True):
        assert torch.equal(old, new) if isinstance(old, torch.Tensor) else old == new


CALL = "out = original(*args, **kwargs)"
STAYS = {
    "an argument changed": PLAIN.replace(CALL, "out = original(*args[1:], **kwargs)"),
    "something before": PLAIN.replace(CALL, f"log.append(args)\n        {CALL}"),
    "on a condition": PLAIN.replace(CALL, f"if log:\n            {CALL}"),
    "called twice": PLAIN.replace("out * 2", "original(*args, **kwargs)"),
    "the arguments read": PLAIN.replace("out * 2", "out * args[0]"),
    "None": PLAIN.replace("return out * 2", "return None"),
    "maybe None": PLAIN.replace("        return out * 2", "        if log:\n            return out"),
    "a name that is None": PLAIN.replace("out * 2", "out").replace("log.append(out)", "out = None"),
    "a generator": PLAIN.replace("log.append(out)", "yield out"),
    "decorated": PLAIN.replace("    def wrapper", "    @log.each\n    def wrapper"),
    "a default": PLAIN.replace("*args, **kwargs):", "x=1, *args, **kwargs):").replace("(*args", "(x, *args", 1),
    "a keyword of its own": PLAIN.replace("*args, **kwargs):", "*args, own=1, **kwargs):"),
    "in a loop": PLAIN.replace("\n    ", "\n        ").replace("\n", "\n    for layer in log:\n", 1),
    "on another block": PLAIN.replace("    layer.forward =", "    if log:\n        layer.forward ="),
    "put back": f"{PLAIN}    log.run()\n    layer.forward = original\n",
    "deleted": f"{PLAIN}    log.run()\n    del layer.forward\n",
    "kept for others": f"{PLAIN}    return original\n",
    "the wrapper used": f"{PLAIN}    log.append(wrapper)\n",
    "looked at": f"{PLAIN}    assert layer.forward\n",
    "asked for by name": f'{PLAIN}    assert getattr(layer, "forward")\n',
    "another layer in between": PLAIN.replace("    def wrapper", "    layer = log.next()\n\n    def wrapper"),
    "a taken name": PLAIN.replace("log.append(out)", "log.append(_module)"),
    "bound": PLAIN.replace("= wrapper", "= wrapper.__get__(layer)"),
    "a lambda": PLAIN.partition("    def")[0] + "    layer.forward = lambda *args: original(*args) * 2\n",
    "a class": PLAIN.replace("layer.forward", "TransformerLayer.forward"),
    "an unknown object": PLAIN.replace(": TransformerLayer", ""),
}  # fmt: skip


@pytest.mark.parametrize("code", STAYS.values(), ids=STAYS)
def test_every_other_form_stays(code: str) -> None:
    assert HEAD + code != HEAD + PLAIN
    assert became(code) in {code, HEAD + code}


OTHERS = {
    "called directly": "def run(block, x):\n    return block.layer.forward(x)\n",
    "handed on": "def run(block, checkpoint, x):\n    return checkpoint(block.layer.forward, x)\n",
    "a hook": "def run(block, f):\n    block.layer.register_forward_hook(f)\n",
    "another wrapper": HEAD + PLAIN.replace("out = original", "log.append(1)\n        out = original"),
    "of the class": HEAD + "def patch(f):\n    TransformerLayer.forward = f\n",
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_the_repository_does_with_such_a_module_holds_it(other: str) -> None:
    assert became(PLAIN, pkg__other=other) == PLAIN


def test_two_wrappers_of_this_form_become_hooks_in_their_order() -> None:
    second = PLAIN.replace("def use", "def use_too").replace("* 2", "+ 1")
    assert became(PLAIN, pkg__other=HEAD + second) == BECOMES[PLAIN]


def test_a_test_that_calls_forward_holds_nothing() -> None:
    assert became(PLAIN, tests__test_m="def test(layer, x):\n    layer.forward(x)\n") == BECOMES[PLAIN]
