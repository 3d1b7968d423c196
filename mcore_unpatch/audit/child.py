"""Inside a program that runs under `unpatch audit`: watch from the start, report at the first forward and at exit."""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Any

from mcore_unpatch.audit import audit, watching

# Python imports this by itself at its start, in every process that inherits PYTHONPATH. Another of the same name, the
# user's, is still run.
SITECUSTOMIZE = """\
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
this = sys.modules.pop("sitecustomize")
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
try:
    import sitecustomize
except ModuleNotFoundError as error:
    if error.name != "sitecustomize":
        raise
sys.modules.setdefault("sitecustomize", this)
try:
    from mcore_unpatch.audit import child
except ImportError as error:
    with open(os.path.join(here, f"failed.{os.getpid()}"), "w") as file:
        file.write(f"{sys.executable}: {error}")
else:
    child.Reporter(here)
"""


class Reporter:
    """Watches this process from now on; its reports go into a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.handle: Any = None
        self.model: Any = None
        watching.watch().on_import.append(self.listen)
        atexit.register(self.report)

    def listen(self) -> None:
        """Wait for the first forward, once there is a torch to ask."""
        hooks = sys.modules.get("torch.nn.modules.module")
        if self.handle is None and hasattr(hooks, "register_module_forward_pre_hook"):
            self.handle = hooks.register_module_forward_pre_hook(self._before_forward)  # type: ignore[union-attr]

    def _before_forward(self, module: Any, args: Any) -> None:
        language = sys.modules.get("megatron.core.models.common.language_module.language_module")
        kind = getattr(language, "LanguageModule", None)
        if kind is not None and any(isinstance(inner, kind) for inner in module.modules()):
            self.handle.remove()
            self.model = weakref.ref(module)
            self.report()

    def report(self) -> None:
        """Write what there is to say; a process that never imported Megatron says nothing."""
        if "megatron.core" not in sys.modules:
            return
        try:
            report = audit(self.model and self.model())
            report.rank = f"{report.rank}-{os.getpid()}" if "RANK" in os.environ else report.rank
            report.save(self.folder)
        except OSError as error:
            print(f"unpatch audit: no report was written: {error}", file=sys.stderr)
