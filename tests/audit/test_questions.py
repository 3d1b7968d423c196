"""What the audit asks of live objects, in this process: each question with its answer, on modules of a few lines."""

import functools
import importlib.util
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcore_unpatch import audit
from mcore_unpatch.audit import hook, instances, origin, report, watching
from mcore_unpatch.audit.origin import CodeOrigin
from mcore_unpatch.audit.watching import Watch

HOME = "megatron.core.of_a_few_lines"
SOURCE = """
def plain(value):
    return value

def other(value):
    return value

class Shape:
    def forward(self, value):
        return value

    def backward(self, value):
        return value

class Child:
    pass

class Holder:
    def __init__(self):
        self.first = Shape()
        self.given = self.first
        self.none = None
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module of Megatron's, as far as its name goes."""
    file = tmp_path / "of_a_few_lines.py"
    file.write_text(SOURCE)
    spec: Any = importlib.util.spec_from_file_location(HOME, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, HOME, module)
    monkeypatch.setattr(origin, "_by_file", {})
    yield module
    instances._made_by_constructor.cache_clear()


def mine(*args: Any) -> Any:
    return args


@pytest.fixture
def watch(library: Any) -> Watch:
    found = Watch()
    found.note(library)
    return found


def names(watch: Watch) -> list[str]:
    return [one.name.removeprefix(f"{HOME}.") for one in watch.rebindings]


def test_a_rebinding_is_told_once_with_its_moment_and_its_author(watch: Watch, library: Any) -> None:
    assert not watch.compare("before")
    library.Shape.forward = mine
    assert watch.compare("now")
    assert not watch.compare("later")
    (one,) = watch.rebindings
    assert (one.name, one.moment, one.stack) == (f"{HOME}.Shape.forward", "now", ())
    assert one.by.name.endswith("test_questions.mine")


def test_what_megatron_changes_itself_is_no_patch_and_putting_back_is_told(watch: Watch, library: Any) -> None:
    forward, library.Shape.forward = library.Shape.forward, mine
    library.plain = library.other
    watch.compare("now")
    assert names(watch) == ["plain", "Shape.forward"]
    library.Shape.forward = forward
    assert watch.compare("put back")
    assert names(watch)[2:] == ["Shape.forward"]


def test_a_name_that_is_gone_is_told(watch: Watch, library: Any) -> None:
    del library.Shape.backward
    assert watch.compare("now")
    assert names(watch) == ["Shape.backward"]


def test_only_the_stored_names_are_compared_unless_any_may_be(watch: Watch, library: Any) -> None:
    library.Shape.forward = library.plain = mine
    frame = sys._getframe()
    assert not watch.compare("now", {"backward": 3}, frame)
    assert watch.compare("now", {"forward": 7}, frame)
    assert names(watch) == ["Shape.forward"]
    assert watch.compare("now", {"": 9, "unknown": 4}, frame)
    assert names(watch) == ["Shape.forward", "plain"]
    first, second = watch.rebindings
    here = f"{__file__}:%s in test_only_the_stored_names_are_compared_unless_any_may_be"
    assert (first.stack[0], second.stack[0]) == (here % 7, here % 9)
    assert 1 < len(first.stack) <= 12
    assert all(":0 in" not in line for line in first.stack)


def test_the_line_of_each_frame_but_the_first_is_its_own() -> None:
    def inner() -> list[str]:
        return list(watching._stack(sys._getframe(), 5))

    lines = inner()
    me = inner.__qualname__
    assert lines[0] == f"{__file__}:5 in {me}"
    assert lines[1].startswith(f"{__file__}:{inner.__code__.co_firstlineno + 3} in test_the_line_of")
    assert next(watching._stack(sys._getframe(), 0)).startswith(f"{__file__}:")
    assert list(watching._stack(None, 3)) == []


def test_frames_of_mock_and_of_the_import_are_left_out() -> None:
    def frame(file: str, back: Any = None) -> Any:
        return SimpleNamespace(f_code=SimpleNamespace(co_filename=file, co_qualname="f"), f_lineno=2, f_back=back)

    outer = frame("/a/train.py")
    for skipped in ("<frozen importlib>", "/lib/unittest/mock.py"):
        assert list(watching._stack(frame(skipped, outer), 9)) == ["/a/train.py:2 in f"]


def test_each_listener_is_told_of_a_module_of_python(library: Any) -> None:
    watch, calls = Watch(), []
    watch.on_import.append(lambda: calls.append(1))
    for file in (None, "", "/a/built.so"):
        watch.note(types.SimpleNamespace(__file__=file, __name__="x"))  # type: ignore[arg-type]
    assert not calls
    watch.note(library)
    watch.note(library)
    assert calls == [1, 1]
    assert len(watch._held["forward"]) == 1


def stores_attribute(shape: Any) -> None:
    shape.forward = shape.unheard_of = 1


def deletes_attribute(shape: Any) -> None:
    del shape.forward


def sets_by_name(shape: Any, name: str) -> None:
    setattr(shape, name, 1)


def sets_in_the_dictionary(shape: Any) -> None:
    vars(shape)["a"] = shape.__dict__


def imports_it() -> None:
    import megatron.core  # noqa: F401


def reads(shape: Any) -> Any:
    return shape.unheard_of


@pytest.mark.parametrize(
    ("function", "may", "stored"),
    [
        (stores_attribute, True, {"forward": 1, "unheard_of": 1}),
        (deletes_attribute, True, {"forward": 1}),
        (sets_by_name, True, {"": 1}),
        (sets_in_the_dictionary, True, {"": 1}),
        (imports_it, True, {}),
        (reads, False, {}),
    ],
)
def test_what_a_function_may_rebind(watch: Watch, function: Any, may: bool, stored: dict[str, int]) -> None:
    code = function.__code__
    assert watch.may_rebind(code) is may
    assert watching._stored(code) == {name: code.co_firstlineno + line for name, line in stored.items()}


class Finder:
    """Finds every module, and says how it was asked."""

    def __init__(self, loader: Any) -> None:
        self.loader, self.asked = loader, 0

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        self.asked += 1
        return SimpleNamespace(name=name, loader=self.loader)


class Loader:
    """Makes nothing, and notes what it ran."""

    ran: list[Any]

    def create_module(self, spec: Any) -> Any:
        return f"made for {spec.name}"

    def exec_module(self, module: Any) -> None:
        self.ran = [module, module.__spec__.loader]


def test_megatrons_modules_are_loaded_by_their_own_loader(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    listener = watching._ImportListener(Watch())
    finder, loader = Finder(Loader()), None
    monkeypatch.setattr(sys, "meta_path", [listener, finder])
    assert listener.find_spec("numpy", None) is None
    assert finder.asked == 0
    spec: Any = listener.find_spec(HOME, None)
    assert spec.loader is listener
    loader = listener.loaders[HOME]
    assert loader is finder.loader
    assert listener.create_module(spec) == f"made for {HOME}"
    library.__spec__ = spec
    listener.exec_module(library)
    assert finder.loader.ran == [library, loader]
    assert library.__loader__ is loader
    assert "forward" in listener.watch._held
    for odd in (None, object()):  # a namespace, or a loader of old: nothing to listen to
        finder.loader = odd
        other: Any = listener.find_spec(HOME, None)
        assert other.loader is odd
    monkeypatch.setattr(sys, "meta_path", [listener])
    assert listener.find_spec(HOME, None) is None


@pytest.fixture
def _ended() -> Iterator[None]:
    yield
    watching.stop()


@pytest.mark.usefixtures("_ended")
def test_what_is_imported_before_the_watch_is_noted_too(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_monitor", lambda running: None)
    monkeypatch.setitem(sys.modules, f"{HOME}.nothing", None)  # type: ignore[arg-type]
    assert watching.seen_so_far() == []
    running = watching.watch()
    assert watching.watch() is running
    assert isinstance(sys.meta_path[0], watching._ImportListener)
    library.Shape.forward = mine
    assert [one.moment for one in watching.seen_so_far()] == ["at the time of this audit"]
    watching.stop()
    assert not any(isinstance(finder, watching._ImportListener) for finder in sys.meta_path)
    assert watching.seen_so_far() == []


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


@pytest.mark.parametrize(
    ("target", "holds"),
    [
        ("Shape", True),
        ("Shape.forward", True),
        ("plain", True),
        ("nothing", False),
        ("of_a_few_lines", True),
        ("of_a_few_lines.plain", True),
        ("lines", False),
        (HOME, True),
        (f"{HOME}.Shape", True),
        ("megatron.core", True),
        ("megatron.core.other", False),
        ("borrowed", False),
        ("foreign", True),
    ],
)
def test_which_modules_can_hold_a_target(library: Any, target: str, holds: bool) -> None:
    library.borrowed = type("borrowed", (), {"__module__": "megatron.core.elsewhere"})
    library.foreign = mine
    assert audit._may_hold(library, target) is holds


def test_what_is_gone_or_nobodys_is_not_megatrons(watch: Watch, library: Any) -> None:
    asked = watch._is_megatrons
    assert asked(f"{HOME}.plain", library, library.plain) is True
    assert asked(f"{HOME}.plain", library, library.other) is False
    assert asked(f"{HOME}.plain", library, None) is False
    assert asked(f"{HOME}.Shape.forward", library.Shape, library.Shape.forward) is True
    assert asked(f"{HOME}.Shape.forward", library.Shape, mine) is False
    lost = type("Lost", (), {"__module__": "megatron.core.gone", "f": mine})
    assert asked("megatron.core.gone.Lost.f", lost, mine) is False


def patches(shape: Any) -> None:
    shape.forward = mine


def patches_and_yields(shape: Any) -> Iterator[None]:
    shape.backward = mine
    yield


@pytest.mark.usefixtures("_ended")
def test_a_function_that_patches_is_seen_when_it_returns_or_yields(library: Any) -> None:
    monitoring = sys.monitoring
    taken = [number for number in watching._TOOLS if monitoring.get_tool(number) is not None]
    watching.watch()
    (tool,) = [number for number in watching._TOOLS if monitoring.get_tool(number) == "mcore-unpatch"]
    assert tool not in taken
    patches(library.Shape)
    pending = patches_and_yields(library.Shape)
    next(pending)
    seen = watching.seen_so_far()
    assert [(one.name.removeprefix(f"{HOME}."), one.moment) for one in seen] == [
        ("Shape.forward", "patches returned"),
        ("Shape.backward", "patches_and_yields returned"),
    ]
    assert [one.stack[0] for one in seen] == [
        f"{__file__}:{function.__code__.co_firstlineno + 1} in {function.__name__}"
        for function in (patches, patches_and_yields)
    ]
    watching.stop()
    assert monitoring.get_tool(tool) is None
    for _ in range(watching._PATIENCE + 1):  # none of them calls back any more
        patches(library.Child)
    assert watching.seen_so_far() == []


@pytest.mark.usefixtures("_ended")
def test_the_second_tool_is_taken_where_the_first_is_not_free(library: Any) -> None:
    monitoring = sys.monitoring
    first, second = watching._TOOLS
    monitoring.use_tool_id(first, "a debugger")
    try:
        watching.watch()
        assert monitoring.get_tool(second) == "mcore-unpatch"
        watching.stop()
        monitoring.use_tool_id(second, "a profiler")
        watching.watch()  # none is left: what was rebound is told by the audit alone
        patches(library.Shape)
        assert [one.moment for one in watching.seen_so_far()] == ["at the time of this audit"]
    finally:
        for number in (first, second):
            if monitoring.get_tool(number) in ("a debugger", "a profiler"):
                monitoring.free_tool_id(number)
