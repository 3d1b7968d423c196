"""What the audit asks of live objects, in this process: each question with its answer, on modules of a few lines."""

import functools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from few_lines import HOME, mine

from mcore_unpatch import audit
from mcore_unpatch.audit import hook, instances, origin, report
from mcore_unpatch.audit.origin import CodeOrigin


class Slotted:
    """Has no dictionary; of its attributes only `__wrapped__` says what it wraps."""

    __slots__ = ("__wrapped__", "fn")

    def __call__(self) -> None: ...


def test_what_a_wrapper_holds() -> None:
    bare, wrapping = Slotted(), Slotted()
    bare.fn = wrapping.fn = wrapping.__wrapped__ = mine
    assert list(origin.inside(bare)) == []
    assert list(origin.inside(wrapping)) == [mine]
    assert list(origin.inside(functools.cache(mine))) == [mine]
    assert list(origin.inside(functools.partial(mine, 1))) == [mine]
    assert list(origin.inside(len)) == []

    def recursive() -> Any:
        return later, recursive, mine_too, 1

    assert list(origin.inside(recursive)) == [recursive]  # what is not bound yet holds nothing
    later = mine_too = mine
    assert list(origin.inside(recursive)) == [mine, mine, recursive]
    assert origin.way_in(functools.partial(mine), lambda one: one is mine, 0) is None
    assert [*(origin.way_in(functools.partial(mine), lambda one: one is mine, 1) or [])][1:] == [mine]


def test_where_a_class_stands(tmp_path: Path) -> None:
    file = tmp_path / "shapes.py"
    file.write_text("import os\n\n\nclass Shape:\n    class Inner: pass\n")
    assert origin._line_of_class(str(file), "Shape") == 4
    assert origin._line_of_class(str(file), "Inner") == 5
    assert origin._line_of_class(str(file), "Shap") == 0
    assert origin._line_of_class(str(tmp_path / "none.py"), "Shape") == 0
    made = type("Made", (), {"__module__": "nobody.knows"})
    assert origin._of_class(made) == CodeOrigin("nobody.knows.Made", "", 0, "nobody")


@pytest.mark.parametrize(
    ("module", "package"),
    [("megatron.core.x", "megatron.core"), ("megatron", "megatron"), ("verl.a.b", "verl"), ("__main__", "")],
)
def test_the_package_of_a_module(module: str, package: str) -> None:
    assert origin.package_of(module) == package


@pytest.mark.parametrize(
    ("shown", "given"),
    [("f (a.py:3)", ("f", "a.py", 3)), ("f (a.py)", ("f", "a.py", 0)), ("f", ("f", "", 0)), ("f", ("f",))],
)
def test_an_origin_in_words(shown: str, given: tuple[Any, ...]) -> None:
    assert str(CodeOrigin(*given)) == shown


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


def test_methods_of_a_subclass_are_told_by_the_class_of_megatron(library: Any) -> None:
    own: Any = type("Own", (library.Shape,), {"forward": mine, "__module__": "verl.x"})()
    own.forward, own.backward = function_of("verl"), function_of("verl")
    found = [name.removeprefix(f"{HOME}.") for name, _ in instances._bound_over(own)]
    assert found == ["Shape.forward", "Shape.backward"]


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


def test_the_sentinel_hands_on_what_it_was_given() -> None:
    """Wrappers go on with the output of the model."""
    sentinel = hook._Sentinel()
    assert sentinel(hidden_states="states", other=1) == "states"
    assert sentinel.called


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (hook.HookOutcome("called"), "The hook works: the processor was called."),
        (hook.HookOutcome("no output"), "This pipeline stage has no output; ask on the last one."),
        (hook.HookOutcome("failed", said="no"), "The forward failed before the hook: no"),
        (hook.HookOutcome("swallows", "Wrapper"), "The hook is lost: Wrapper swallows output_processor."),
        (hook.HookOutcome("refuses", "f", "Do."), "The hook is lost: f refuses output_processor. Do."),
    ],
)
def test_how_the_sentinel_fared_in_words(outcome: hook.HookOutcome, said: str) -> None:
    assert str(outcome) == said
    assert bool(outcome) is (outcome.how == "called")


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


def test_a_target_that_only_a_patch_has(library: Any) -> None:
    """An added name, a replaced one, a module: each can be asked for."""
    seen = [report.Deviation("added", f"{HOME}.Shape.extra", CodeOrigin("f"))]
    for target in ("Shape.extra", f"{HOME}.Shape.extra", "extra"):
        assert audit._exists(target, [], seen)
        assert not audit._exists(target, [library], [])
    for target in ("Shape", "Shape.forward", f"{HOME}.plain", HOME):
        assert audit._exists(target, [library], [])
    assert not audit._exists("Shape.nothing", [library], seen)


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
