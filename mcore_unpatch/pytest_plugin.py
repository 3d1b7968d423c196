"""A pytest plugin: a test suite of a downstream as the detector of patches that stay, and of pins that no longer hold.

`--unpatch-audit` lists what each test left patched. The fixture and marker `megatron_unpatched` fail such a test.
`--unpatch-pins` makes each pin of `unpatch.lock` a test: `unpatch[GPTModel._postprocess]`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from mcore_unpatch.audit.report import Deviation
    from mcore_unpatch.pins import Pin

MARKER = "megatron_unpatched"
_OUTPUT = "unpatch_left_behind"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Our two options."""
    group = parser.getgroup("unpatch", "patches of Megatron Core")
    group.addoption("--unpatch-audit", action="store_true", help="List what each test leaves patched in Megatron Core.")
    pins = "Test each pin of unpatch.lock against the installed Megatron Core."
    group.addoption("--unpatch-pins", action="store_true", help=pins)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", f"{MARKER}: fails if the test leaves Megatron Core patched")
    config.pluginmanager.register(_Session(config), "unpatch-session")


@pytest.fixture
def megatron_unpatched() -> Iterator[None]:
    """Fail the test if it leaves Megatron Core patched."""
    before = {deviation.key for deviation in _deviations()}
    yield
    left = [deviation for deviation in _deviations() if deviation.key not in before]
    if left:
        pytest.fail("\n".join(["this test leaves Megatron patched:", *map(str, left)]), pytrace=False)


def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give marked tests the fixture, and add a test for each pin."""
    for item in items:
        names = getattr(item, "fixturenames", None)
        if names is not None and (MARKER in names or item.get_closest_marker(MARKER)):
            # First to be set up and last to go: what a fixture such as monkeypatch puts back is back by then.
            names[:] = [MARKER, *(name for name in names if name != MARKER)]
    file = config.rootpath / "unpatch.lock"
    if config.getoption("--unpatch-pins") and file.is_file():
        from mcore_unpatch import pins

        known = pins.load(file).pins.values()
        items += [PinItem.from_parent(session, name=f"unpatch[{pin.short}]", pin=pin, file=file) for pin in known]


class PinItem(pytest.Item):
    """One pin: still what it was written for."""

    def __init__(self, *, pin: Pin, file: Path, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pin, self.file = pin, file

    def runtest(self) -> None:
        """Compare the pin with the installed Megatron."""
        from mcore_unpatch import pins
        from mcore_unpatch.gate import pinned
        from mcore_unpatch.stacks.sources import installed_model

        release = installed_model()
        if release is None:
            pytest.skip("megatron-core is not installed")
        said = [f"`{self.pin.name}` {text}" for _, text in pinned.problems(self.pin, [release])]
        if said:
            raise pins.PinError("\n".join([*said, *([f"why it stays: {self.pin.why}"] if self.pin.why else [])]))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The sentence alone."""
        from mcore_unpatch.pins import PinError

        return str(excinfo.value) if isinstance(excinfo.value, PinError) else super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where the pin stands."""
        lines = self.file.read_text(encoding="utf-8").splitlines()
        wanted = f'name = "{self.pin.name}"'
        return self.file, lines.index(wanted) if wanted in lines else 0, self.name


class _Session:
    """What the tests of a session left patched, from all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.enabled = config, bool(config.getoption("--unpatch-audit"))
        self.left: list[tuple[str, str]] = []
        self.seen: set[str] = set()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Compare after each test, also where its teardown fails."""
        try:
            return (yield)
        finally:
            if self.enabled:
                fresh = [deviation for deviation in _deviations() if deviation.key not in self.seen]
                self.seen |= {deviation.key for deviation in fresh}
                self.left += [(item.nodeid, str(deviation)) for deviation in fresh]

    def pytest_sessionfinish(self) -> None:
        """A worker hands what it saw to the session that prints."""
        if (output := getattr(self.config, "workeroutput", None)) is not None:
            output[_OUTPUT] = self.left

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Take over what a worker saw."""
        self.left += [tuple(row) for row in getattr(node, "workeroutput", {}).get(_OUTPUT, [])]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """The section of the report."""
        if not self.enabled:
            return
        terminalreporter.section("Megatron Core, patched by this session")
        for test, said in self.left:
            terminalreporter.write_line(f"{test}: {said}")
        if not self.left:
            terminalreporter.write_line("Nothing: no test left a name of Megatron patched.")


def _deviations() -> list[Deviation]:
    import sys

    if "megatron.core" not in sys.modules:
        return []
    from mcore_unpatch.audit import names

    return names.deviations(names.loaded_modules().values())
