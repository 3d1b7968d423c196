"""What importing our names says where something is missing, too old or switched off.

Importing torch takes seconds, and Megatron twice as long. One process imports what all situations share, and forks for
every one of them and every name.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from limits import patience

_COMPAT = "mcore_unpatch.compat"
_PARTS = ("model_forward_fused", "mtp_patch", "model_forward_1f1b_overlap")
SHIMS = [f"{_COMPAT}.{shim}" for shim in ("nemo_rl", "skyrl", *(f"verl.{part}" for part in _PARTS))]
NEEDS_HOOK = [f"{_COMPAT}.hook.{module}" for module in ("attach", "processors", "head")]
MEGATRON = "import torch, megatron.core.models.gpt.gpt_model\n"

_EACH_IN_A_FORK = """
import contextlib, importlib, io, json, os, sys
said = []
for program, environment in json.loads(sys.argv[1]):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.environ.update(environment)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            try:
                exec(program, {"__name__": "__main__"})
            except BaseException as error:
                print(f"{type(error).__name__}: {error}")
        os.write(writer, out.getvalue().encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        said.append(pipe.read().strip())
    os.wait()
print(json.dumps(said))
"""
IMPORT = """
import importlib
module, _, attribute = {name!r}.partition(":")
module = importlib.import_module(module)
if attribute:
    getattr(module, attribute)
print("nothing")
"""


@dataclass(frozen=True)
class Situation:
    """Names (a module, or `module:name`) that are imported after `prelude` has run, in an environment."""

    names: Iterable[str]
    prelude: str = ""
    environment: dict[str, str] = field(default_factory=dict)


def public_names() -> dict[str, str]:
    """`package:name` of what compat has, one of each module, and that module: its names share their fate."""
    from mcore_unpatch.compat import _HOME

    one_of = {module: name for name, module in _HOME.items()}
    return {f"{_COMPAT}:{name}": f"{_COMPAT}.{module}" for module, name in one_of.items()}


def printed_in_forks(base: str, programs: list[tuple[str, dict[str, str]]], **environment: str) -> list[str]:
    """What each program prints, the error that ends it included, after `base` has run, in an environment of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", base + _EACH_IN_A_FORK, json.dumps(programs)],
        env={**os.environ, "PYTHONSAFEPATH": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(120),
    )
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout.splitlines()[-1])
    return said


def said_by_imports(*situations: Situation) -> list[dict[str, str]]:
    """Of each situation the error of importing each name, with torch and Megatron imported before."""
    asked = [(one, name) for one in situations for name in one.names]
    programs = [(one.prelude + IMPORT.format(name=name), one.environment) for one, name in asked]
    said = iter(printed_in_forks(MEGATRON, programs))
    return [{name: next(said) for name in one.names} for one in situations]
