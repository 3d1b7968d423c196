"""What importing our modules says where something is missing or too old: in a Python of its own, as a user meets it.

Importing torch takes seconds. One process per situation imports what is there, and forks for every module.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from limits import patience

_PARTS = ("model_forward_fused", "mtp_patch", "model_forward_1f1b_overlap")
_ALL = [*("areal", "miles", "nemo_rl", "roll", "skyrl", "slime"), *(f"verl.{part}" for part in _PARTS)]
# Each module of a shim, and the name by which it speaks: veRL's is a package, which asks for all of its parts.
SHIMS = {f"mcore_unpatch.compat.{shim}": f"mcore_unpatch.compat.{shim.partition('.')[0]}" for shim in _ALL}

_EACH_IN_A_FORK = """
import importlib, json, os, sys
said = {}
for name in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            importlib.import_module(name)
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


def said_by_imports(modules: Sequence[str], prelude: str = "") -> dict[str, str]:
    """The error of importing each of `modules`, after `prelude` has run."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", prelude + _EACH_IN_A_FORK, json.dumps(modules)],
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, str] = json.loads(done.stdout)
    return said
