"""The watch, in this process, on a module of a few lines: what is rebound, when, by whom, and what it leaves behind."""

import sys
import types
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from few_lines import HOME, mine

from mcore_unpatch.audit import watching
from mcore_unpatch.audit.watching import Watch


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
    assert one.by.name.endswith("few_lines.mine")


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


def test_what_is_gone_or_nobodys_is_not_megatrons(watch: Watch, library: Any) -> None:
    asked = watch._is_megatrons
    assert asked(f"{HOME}.plain", library, library.plain) is True
    assert asked(f"{HOME}.plain", library, library.other) is False
    assert asked(f"{HOME}.plain", library, None) is False
    assert asked(f"{HOME}.Shape.forward", library.Shape, library.Shape.forward) is True
    assert asked(f"{HOME}.Shape.forward", library.Shape, mine) is False
    lost = type("Lost", (), {"__module__": "megatron.core.gone", "f": mine})
    assert asked("megatron.core.gone.Lost.f", lost, mine) is False


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


def stop() -> None:
    """End the watch, as the end of a process does."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, watching._ImportListener)]
    running, watching._running = watching._running, None
    for tool in watching._TOOLS:
        if sys.monitoring.get_tool(tool) == "mcore-unpatch":
            sys.monitoring.set_events(tool, 0)
            for code in running.stores if running is not None else ():
                sys.monitoring.set_local_events(tool, code, 0)
            sys.monitoring.free_tool_id(tool)


@pytest.fixture
def _ended() -> Iterator[None]:
    yield
    stop()


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


@pytest.mark.usefixtures("_ended")
def test_the_second_tool_is_taken_where_the_first_is_not_free(library: Any) -> None:
    monitoring = sys.monitoring
    first, second = watching._TOOLS
    monitoring.use_tool_id(first, "a debugger")
    try:
        watching.watch()
        assert monitoring.get_tool(second) == "mcore-unpatch"
        stop()
        monitoring.use_tool_id(second, "a profiler")
        watching.watch()  # none is left: what was rebound is told by the audit alone
        patches(library.Shape)
        assert [one.moment for one in watching.seen_so_far()] == ["at the time of this audit"]
    finally:
        for number in (first, second):
            if monitoring.get_tool(number) in ("a debugger", "a profiler"):
                monitoring.free_tool_id(number)
