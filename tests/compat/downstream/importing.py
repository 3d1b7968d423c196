"""What importing our names says where something is missing, too old or switched off: in a Python of its own.

Importing torch takes seconds. One process per situation imports what is there, and forks for every name.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable

from limits import patience

_COMPAT = "mcore_unpatch.compat"
_PARTS = ("model_forward_fused", "mtp_patch", "model_forward_1f1b_overlap")
_ALL = ["nemo_rl", "skyrl", *(f"verl.{part}" for part in _PARTS)]
SHIMS = [f"{_COMPAT}.{shim}" for shim in _ALL]
NEEDS_HOOK = [f"{_COMPAT}.hook.{module}" for module in ("attach", "processors", "head")]

_EACH_IN_A_FORK = """
import importlib, json, os, sys
said = {}
for name in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            module, _, attribute = name.partition(":")
            module = importlib.import_module(module)
            if attribute:
                getattr(module, attribute)
            text = "nothing"
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(writer, text.encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        said[name] = pipe.read()
    os.wait()
print(json.dumps(said))
"""


def public_names() -> dict[str, str]:
    """`package:name` of what compat has, one of each module, and that module: its names share their fate."""
    from mcore_unpatch.compat import _HOME

    one_of = {module: name for name, module in _HOME.items()}
    return {f"{_COMPAT}:{name}": f"{_COMPAT}.{module}" for module, name in one_of.items()}


def said_by_imports(names: Iterable[str], prelude: str = "", **environment: str) -> dict[str, str]:
    """The error of importing each of `names` (a module, or `module:name`), after `prelude` has run."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", prelude + _EACH_IN_A_FORK, json.dumps(list(names))],
        env={**os.environ, "PYTHONSAFEPATH": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return said
