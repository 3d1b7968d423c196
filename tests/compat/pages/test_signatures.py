"""What callers may leave out: the signature of every public function and class of compat, as somebody last read it.

After a change that is meant, `APPROVE=1 pytest tests/compat/pages/test_signatures.py` writes `signatures.txt` anew.
"""

import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

from mcore_unpatch import compat

FILE = Path(__file__).parent / "signatures.txt"


def _signatures() -> Iterator[str]:
    for found in sorted(pkgutil.walk_packages(compat.__path__, f"{compat.__name__}."), key=lambda one: one.name):
        if ".triton" in found.name:  # not to be imported everywhere
            continue
        module = importlib.import_module(found.name)
        for name, item in sorted(vars(module).items()):
            if name.startswith("_") or getattr(item, "__module__", "") != found.name or not callable(item):
                continue
            yield f"{found.name}.{name}{_signature(item)}"
            for method, function in sorted(vars(item).items()) if isinstance(item, type) else ():
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{found.name}.{name}.{method}{_signature(function)}"


def _signature(item: object) -> str:
    """Names and defaults; the types are the type checker's."""
    try:
        known = inspect.signature(item)  # type: ignore[arg-type]
    except ValueError:
        return "(...)"
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in known.parameters.values()]
    return re.sub(r" at 0x\w+", "", str(known.replace(parameters=bare, return_annotation=inspect.Signature.empty)))


def test_what_may_be_left_out() -> None:
    said = "".join(f"{line}\n" for line in _signatures())
    if "APPROVE" in os.environ:
        FILE.write_text(said)
    assert said.splitlines() == FILE.read_text().splitlines(), "if this is meant: run it once with APPROVE=1"
