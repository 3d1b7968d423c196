"""Record who rebinds a name of Megatron, and where: `watch()`, called first in the program.

Nothing is patched. An import hook notes what each module of Megatron holds when it has been imported. Later, names are
compared again at stated moments: whenever a function (or the body of a module) returns or yields that stores an
attribute of a name Megatron has, or calls `setattr` (Python 3.12, `sys.monitoring`); and when `audit()` is called.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

from mcore_unpatch.audit.names import is_code, own_code
from mcore_unpatch.audit.origin import maker_of
from mcore_unpatch.audit.report import Rebinding
from mcore_unpatch.megatron.versions import within

_SETTERS = frozenset({"setattr", "__setattr__", "__dict__", "vars"})
_PATIENCE = 100  # comparisons without a change, after which a function is left alone
_TOOLS = (3, 4)  # the ids of sys.monitoring that no kind of tool has for itself
_DEPTH = 12


class Watch:
    """What Megatron's names were when they were imported, and what became of them."""

    def __init__(self) -> None:
        self.rebindings: list[Rebinding] = []
        self.on_import: list[Callable[[], None]] = []  # called when a module of Megatron has been imported
        self.stores: dict[CodeType, dict[str, int]] = {}  # what is looked at when it returns, by name and line
        self._held: dict[str, list[tuple[str, Any, Any]]] = {}  # leaf -> (dotted name, owner, value)
        self._names: set[str] = set()

    def note(self, module: ModuleType) -> None:
        """Remember what a module holds now."""
        if not (getattr(module, "__file__", None) or "").endswith(".py"):
            return
        self._note_all(module.__name__, module)
        for listener in self.on_import:
            listener()
        for name, value in list(vars(module).items()):
            if isinstance(value, type) and value.__module__ == module.__name__ and value.__qualname__ == name:
                self._note_all(f"{module.__name__}.{name}", value)

    def _note_all(self, prefix: str, owner: Any) -> None:
        for name, value in vars(owner).items():
            if is_code(value) and f"{prefix}.{name}" not in self._names:
                self._names.add(f"{prefix}.{name}")
                self._held.setdefault(name, []).append((f"{prefix}.{name}", owner, value))

    def may_rebind(self, code: CodeType) -> bool:
        """Whether a function says a name of Megatron's, or may import Megatron and so learn one."""
        names = code.co_names
        if not _SETTERS.isdisjoint(names) or not self._held.keys().isdisjoint(names):
            return True
        return any("megatron" in name for name in names)

    def compare(self, moment: str, lines: Mapping[str, int] | None = None, frame: FrameType | None = None) -> bool:
        """Record what is not what it was, and say whether there was anything.

        Of the names in `lines` (the line that stores each), or of all, where an empty one stands among them.
        """
        changed = False
        lines = lines or {"": 0}
        for leaf in list(self._held) if "" in lines else lines:
            for index, (name, owner, before) in enumerate(self._held.get(leaf, [])):
                now = vars(owner).get(leaf)
                if now is before:
                    continue
                self._held[leaf][index] = (name, owner, now)
                if not (self._is_megatrons(name, owner, now) and self._is_megatrons(name, owner, before)):
                    stack = tuple(_stack(frame, lines.get(leaf) or lines.get("", 0)))
                    self.rebindings.append(Rebinding(name, maker_of(now), moment, stack))
                    changed = True
        return changed

    def _is_megatrons(self, name: str, owner: Any, value: Any) -> bool:
        """Whether Megatron's own file may have made it so: it switches some of its names itself."""
        home = owner.__name__ if isinstance(owner, ModuleType) else owner.__module__
        module = sys.modules.get(home)
        if not isinstance(module, ModuleType) or value is None:
            return False
        own, qualified = own_code(module), name.removeprefix(f"{home}.")
        return own.holds(value, qualified) if own.by_name.get(qualified) else own.accepts(value)


class _ImportListener(MetaPathFinder, Loader):
    """Lets the other finders find Megatron's modules and their loaders load them, and tells the watch when they ran."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.loaders: dict[str, Loader] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """The spec that another finder has, with this as its loader."""
        if not within(name):
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self else None
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    self.loaders[name], spec.loader = spec.loader, self
                return spec
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As the loader does."""
        return self.loaders[spec.name].create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module with its own loader in place."""
        loader = self.loaders[module.__name__]
        if module.__spec__ is not None:
            module.__spec__.loader = module.__loader__ = loader
        loader.exec_module(module)
        self.watch.note(module)


_running: Watch | None = None


def watch() -> Watch:
    """Record every later rebinding of Megatron's names, with its stack; call it first in the program."""
    global _running
    if _running is None:
        _running = Watch()
        for name, module in list(sys.modules.items()):
            if within(name) and isinstance(module, ModuleType):
                _running.note(module)
        sys.meta_path.insert(0, _ImportListener(_running))
        if sys.version_info >= (3, 12):
            _monitor(_running)
    return _running


def seen_so_far() -> list[Rebinding]:
    """The rebindings until now; empty without a watch."""
    if _running is None:
        return []
    _running.compare("at the time of this audit")
    return list(_running.rebindings)


def _monitor(running: Watch) -> None:
    """Ask Python for the moments at which a function that may rebind something returns or yields."""
    monitoring, events = sys.monitoring, sys.monitoring.events
    tool = next((number for number in _TOOLS if monitoring.get_tool(number) is None), None)
    if tool is None:
        return
    monitoring.use_tool_id(tool, "mcore-unpatch")
    # Code that rebinds nothing of Megatron from outside: Python's, torch's, Megatron's own, and ours.
    library = Path(sysconfig.get_paths()["stdlib"])
    own = [str(file) for file in library.iterdir() if file.name not in ("unittest", "site-packages")]
    packages = ("torch", "triton", "numpy", "megatron/core", "megatron/training")
    installed = [f"{folder}/{name}/" for folder in sys.path if folder.endswith("-packages") for name in packages]
    skipped = ("<frozen", str(Path(__file__).parent), *own, *installed)
    of_interest: dict[str, bool] = {}
    idle: dict[CodeType, int] = {}

    def look_at(code: CodeType) -> None:
        file = code.co_filename
        if file not in of_interest:
            of_interest[file] = not file.startswith(skipped)
        if of_interest[file] and running.may_rebind(code) and (lines := _stored(code)):
            running.stores[code] = lines
            monitoring.set_local_events(tool, code, events.PY_RETURN | events.PY_YIELD)

    def started(code: CodeType, _: int) -> Any:
        look_at(code)
        return monitoring.DISABLE

    def ended(code: CodeType, _: int, __: Any) -> Any:
        if running.compare(f"{code.co_qualname} returned", running.stores.get(code), sys._getframe(1)):
            idle[code] = 0
        else:
            idle[code] = idle.get(code, 0) + 1
            if idle[code] >= _PATIENCE:
                monitoring.set_local_events(tool, code, 0)

    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.PY_RETURN, ended)
    monitoring.register_callback(tool, events.PY_YIELD, ended)

    def begin() -> None:
        """With the first module of Megatron: before it nothing can be rebound, and torch is imported at full speed."""
        if running._held and not monitoring.get_events(tool):
            monitoring.set_events(tool, events.PY_START)
            frame: FrameType | None = sys._getframe()
            while frame is not None:  # what has started already
                look_at(frame.f_code)
                frame = frame.f_back

    running.on_import.append(begin)
    begin()


def _stored(code: CodeType) -> dict[str, int]:
    """The names that a function stores as attributes, with the line; an empty name where it uses `setattr`."""
    lines: dict[str, int] = {}
    for instruction in dis.get_instructions(code):
        line = getattr(instruction.positions, "lineno", None) or 0
        if instruction.argval in _SETTERS and instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR"):
            lines.setdefault("", line)
        elif instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
            lines.setdefault(str(instruction.argval), line)
    return lines


def _stack(frame: FrameType | None, line: int) -> Iterator[str]:
    for _ in range(_DEPTH):
        if frame is None:
            return
        code = frame.f_code
        if not code.co_filename.startswith("<frozen") and not code.co_filename.endswith("unittest/mock.py"):
            yield f"{code.co_filename}:{line or frame.f_lineno} in {code.co_qualname}"
        frame, line = frame.f_back, 0
