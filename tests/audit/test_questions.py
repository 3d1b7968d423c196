"""What the audit asks of live objects, in this process: each question with its answer, on modules of a few lines."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from few_lines import HOME, SOURCE, mine

from mcore_unpatch import audit
from mcore_unpatch.audit import hook, instances, origin
from mcore_unpatch.audit.origin import CodeOrigin


def function_of(package: str) -> Any:
    scope: dict[str, Any] = {"__name__": f"{package}.somewhere"}
    exec(compile("def put(*args): return args", f"<{package}>", "exec"), scope)
    return scope["put"]


@pytest.mark.parametrize(
    ("package", "told"), [("verl", True), ("torch", False), ("mcore_unpatch", False), ("megatron.core", False)]
)
def test_who_puts_a_function_over_a_method(library: Any, package: str, told: bool) -> None:
    shape = library.Shape()
    shape.forward = function_of(package)
    shape.unknown = function_of("verl")  # hides nothing
    shape.data = 3
    assert [name for name, _ in instances._bound_over(shape)] == ([f"{HOME}.Shape.forward"] if told else [])
    own = type("Own", (), {"forward": mine})()
    own.forward = function_of("verl")
    assert list(instances._bound_over(own)) == []  # nobody's class of Megatron


def test_where_a_class_stands(library: Any) -> None:
    assert origin.origin_of(library.Shape).line == SOURCE.splitlines().index("class Shape:") + 1
    made = type("Made", (), {"__module__": "nobody.knows"})
    assert origin.origin_of(made) == CodeOrigin("nobody.knows.Made", "", 0, "nobody")


def test_what_a_constructor_makes(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert instances._made_by_constructor(library.Holder)["first"] == (library.Shape,)
    assert "given" not in instances._made_by_constructor(library.Holder)
    assert "none" not in instances._made_by_constructor(library.Holder)
    for file in (None, ""):
        instances._made_by_constructor.cache_clear()
        monkeypatch.setattr(library, "__file__", file)
        assert instances._made_by_constructor(library.Holder) == {}
    instances._made_by_constructor.cache_clear()
    monkeypatch.delitem(sys.modules, HOME)
    assert instances._made_by_constructor(library.Holder) == {}


@pytest.mark.parametrize(
    ("is_model", "of_megatron", "said"),
    [
        (True, False, "It replaced or overrides Megatron's forward"),
        (True, True, "Use attach() or provide_hook()"),
        (False, True, "Pass **kwargs on in that wrapper"),
        (False, False, "Pass **kwargs on in that wrapper"),
    ],
)
def test_the_way_out(is_model: bool, of_megatron: bool, said: str) -> None:
    assert hook._way_out(is_model, of_megatron).startswith(said)


def test_hooks_that_torch_itself_registers_are_not_foreign() -> None:
    def foreign(module: Any, args: Any) -> None:
        """Somebody's."""

    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    torch.nn.utils.spectral_norm(model[0])
    assert model[0]._forward_pre_hooks
    assert instances.deviations(model)[1] == []
    model[1].register_forward_pre_hook(foreign)
    assert [(one.path, one.kind) for one in instances.deviations(model)[1]] == [("1", "forward pre-hook")]


@pytest.mark.parametrize("loaded", [False, True])
def test_a_process_without_megatron_is_told(loaded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = {"megatron.core": SimpleNamespace(__version__="0.19.2+abc")} if loaded else {}
    monkeypatch.setattr(audit.names, "loaded_modules", lambda: modules)
    monkeypatch.setattr(audit.names, "deviations", lambda _: [])
    monkeypatch.setattr(audit.names, "replaced_modules", list)
    made = audit.audit(files=False)
    assert made.release == ("0.19.2" if loaded else "")
    told = "megatron.core is not imported in this process, so there is nothing to compare yet."
    assert made.notes == ([] if loaded else [told])
