"""One case on one release, in a process of its own: what is done to it, and what came of it."""

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

CASES = Path(__file__).parent / "cases"


class Raised(Exception):
    """The case raised; the stage knows what, where and when."""


class Stage:
    """Loads a case, installs its patch and calls Megatron, and notes the first exception of each of the three."""

    def __init__(self, case: str, release: str, wheels: Path) -> None:
        self.case, self.release = case, release
        self.library = str(wheels / release) + "/"
        self.module: ModuleType | None = None
        self.outcome: dict[str, Any] = {"outcome": "runs", "exception": None, "when": None, "at": None, "ran": False}
        self.trigger: str | None = None

    def load(self) -> ModuleType:
        """Import the case, as the downstream's own code would."""
        self.module = self._during("import", lambda: importlib.import_module(self.case))
        return self.module

    def install(self, action: Callable[[], Any] | None = None) -> Any:
        """Install the patch: `install()` of the case unless told otherwise."""
        return self._during("install", action or (lambda: self.module.install()))  # type: ignore[union-attr]

    def call(self, action: Callable[[], Any]) -> Any:
        """Run Megatron with the patch in place, noting who calls into the case first."""
        sys.setprofile(self._watch)
        try:
            return self._during("call", action)
        finally:
            sys.setprofile(None)

    def _during(self, when: str, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except Exception as error:
            sys.setprofile(None)
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame.lineno for frame in frames if Path(frame.filename).parent == CASES]
            self.outcome |= {"outcome": "raises", "exception": type(error).__name__, "when": when}
            self.outcome |= {"at": own[-1] if own else None, "message": str(error)[:300]}
            if when == "call" and self.trigger is None:
                theirs = [f"{f.filename}:{f.lineno}" for f in frames if f.filename.startswith(self.library)]
                self.trigger = theirs[-1].removeprefix(self.library) if theirs else None
            raise Raised from error

    def _watch(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or self.outcome["ran"] or Path(frame.f_code.co_filename).parent != CASES:
            return
        self.outcome["ran"] = True
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self.library):
            caller = caller.f_back
        if caller is not None:
            self.trigger = f"{caller.f_code.co_filename}:{caller.f_lineno}".removeprefix(self.library)
