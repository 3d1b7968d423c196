"""Wrappers for a while, from factories, and of classes: what they become, and that both do the same on real modules.

Each form of the files is a whole file with a function `use`, which is given a layer or a model, a list to write
into, and a function that runs the model.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from forms import check_forms
from planning import migrate
from torch.nn.modules import module as all_modules

from mcore_unpatch.editing.edits import Options

HERE = Path(__file__).parent
FILES = ("temporary.txt", "factories.txt", "classes.txt")
HEAD = """\
import functools
from contextlib import contextmanager
import torch
from megatron.core.transformer.transformer_layer import TransformerLayer
"""
PACKAGE = "megatron.core.transformer"


class TransformerLayer(torch.nn.Module):
    """A layer that raises when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, hidden: torch.Tensor, fails: bool = False) -> torch.Tensor:
        if fails:
            raise ValueError("told to")
        return self.linear(hidden)


class TransformerBlock(torch.nn.Module):
    """It adds one."""

    def forward(self, hidden: torch.Tensor, fails: bool = False) -> torch.Tensor:
        if fails:
            raise ValueError("told to")
        return hidden + 1


class Model(torch.nn.Module):
    """Two layers and a block."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.block = TransformerLayer(), TransformerLayer(), TransformerBlock()

    def forward(self, hidden: torch.Tensor, fails: bool = False) -> torch.Tensor:
        return self.block(hidden=self.second(self.first(hidden), fails=fails), fails=fails)


def became(form: str) -> tuple[str, list[str]]:
    """The file after a migration, without its imports, and why it stays."""
    result = migrate({"m.py": f"{HEAD}{form}\n".encode()}, Options(unsafe_fixes=True))
    text = "".join(
        line
        for line in result.files["m.py"].decode().splitlines(keepends=True)
        if line not in HEAD.splitlines(keepends=True)
    )
    return text.strip(), [one.text.partition("\n")[0] for one in result.plan.remarks if one.rule == "MCU403"]


@pytest.mark.parametrize("name", FILES)
def test_every_form_becomes_what_somebody_read(name: str) -> None:
    def answers(forms: list[str]) -> Iterator[str]:
        for form in forms:
            text, remarks = became(form)
            same = "\n".join(form.splitlines()) == text
            yield "".join(f" {remark}" for remark in remarks) or " stays" if same else f"\n{text}"

    check_forms(HERE / name, answers)


def sections(name: str) -> list[str]:
    return [part.partition("\n=>")[0] for part in (HERE / name).read_text().split("\n----\n")]


@pytest.mark.parametrize(("name", "index"), [(name, index) for name in FILES for index in range(len(sections(name)))])
@pytest.mark.parametrize("fails", [False, True])
def test_a_hook_does_what_the_wrapper_did(name: str, index: int, fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    form = sections(name)[index]
    text, _ = became(form)
    if text == form:
        return
    torch.manual_seed(1)
    model = Model()
    first, second = (observed(code, copy.deepcopy(model), fails, monkeypatch) for code in (form, text))
    assert first[0] == second[0]
    assert len(first[1]) == len(second[1]) > 0
    for left, right in zip(first[1], second[1], strict=True):
        assert torch.equal(left, right) if isinstance(left, torch.Tensor) else left == right
    is_temporary = (".remove()" in text) and not (fails and "finally" not in text)
    assert not is_temporary or not second[2]


def observed(code: str, model: Model, fails: bool, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[Any], int]:
    """What was raised, what was logged and computed with its gradients, and the hooks that are left."""
    forward = TransformerBlock.forward
    for name in ("megatron", "megatron.core", PACKAGE):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, kind in (("transformer_layer", TransformerLayer), ("transformer_block", TransformerBlock)):
        home = ModuleType(f"{PACKAGE}.{name}")
        setattr(home, kind.__name__, kind)
        monkeypatch.setitem(sys.modules, home.__name__, home)
    space: dict[str, Any] = {}
    exec(compile(HEAD + code, "form", "exec"), space)
    log: list[Any] = []
    hidden = torch.ones(2, 3, requires_grad=True)

    def run(fails: bool = fails) -> torch.Tensor:
        out = model(hidden, fails=fails)
        log.append(out)
        return out

    raised, use = "", space["use"]
    whole = next(iter(use.__code__.co_varnames)) == "model"
    try:
        use(model if whole else model.second, log, run)
    except ValueError as error:
        raised = str(error)
    run(False).sum().backward()
    log += [hidden.grad, *(parameter.grad for parameter in model.parameters())]
    left = sum(len(one._forward_hooks) + len(one._forward_pre_hooks) for one in model.modules())
    left += len(all_modules._global_forward_hooks) + len(all_modules._global_forward_pre_hooks)
    all_modules._global_forward_hooks.clear()
    all_modules._global_forward_pre_hooks.clear()
    TransformerBlock.forward = forward  # type: ignore[method-assign]
    return raised, log, left
