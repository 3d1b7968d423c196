"""What callers may leave out: the signatures of what code outside imports of compat, as somebody last read it.

After a change that is meant, `APPROVE=1 pytest tests/compat/pages/test_signatures.py` writes `signatures.txt` anew.
"""

import importlib
import inspect
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from mcore_unpatch import compat

FILE = Path(__file__).parent / "signatures.txt"


# Names that code outside imports: those of the package, and those of the modules that stand for a framework's own.
MODULES = ("nemo_rl", "skyrl", "verl.model_forward_fused", "verl.mtp_patch")


def _signatures() -> Iterator[str]:
    homes: dict[str, Iterable[str]] = {compat.__name__: compat.__all__}
    homes |= {f"{compat.__name__}.{name}": () for name in MODULES}
    for home, names in homes.items():
        module = importlib.import_module(home)
        own = [name for name, item in vars(module).items() if getattr(item, "__module__", "") == home]
        for name in sorted(names or own):
            item = getattr(module, name)
            if name.startswith("_") or not callable(item):
                continue
            yield f"{home}.{name}{_signature(item)}"
            for method, function in sorted(vars(item).items()) if isinstance(item, type) else ():
                function = getattr(function, "__func__", function)
                if inspect.isfunction(function) and not method.startswith("_"):
                    yield f"{home}.{name}.{method}{_signature(function)}"


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
