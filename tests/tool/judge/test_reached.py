"""Which lines are reached on the newer release, of those that use what it lacks: conditions, exits, handlers."""

from mcore_unpatch.library.build import build
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

RELEASES = {"0.30.0": b"def gone(): pass\ndef kept(): pass\n", "0.31.0": b"def kept(): pass\n"}
HEAD = """\
import builtins, contextlib, typing
from contextlib import suppress
from typing import TYPE_CHECKING
import megatron.core
from megatron.core import utils
"""
# Bodies of functions; GO calls what the newer release lacks.
RAISES = [
    "GO",
    "if x: GO",
    'if not hasattr(utils, "gone"): GO',
    'if hasattr(utils, "kept"): GO',
    'hasattr(utils, "gone") or GO',
    'None if hasattr(utils, "gone") else GO',
    "try: GO\nexcept KeyError: pass",
    "try: GO\nexcept (KeyError, ValueError): pass",
    "try: GO\nexcept AttributeError: raise",
    "try: GO\nexcept AttributeError as e: print(e); raise RuntimeError from e",
    "try: GO\nfinally: pass",
    "try: pass\nexcept AttributeError: pass\nelse: GO",
    "with suppress(KeyError): GO",
    "with suppress(): GO",
    "with lock: GO",
    "with lock(AttributeError): GO",
    "assert x or y\nif not y: GO",
    "assert not (x and y)\nif y: GO",
    "assert x < y\nif x >= y: GO",
    "if x: print()\nif x: GO",
    "if x: return\nelse: print()\nif x: GO",
    "assert x\nx = y\nif not x: GO",
    "assert not x.y\nif x.y: GO",
    "assert not x[0]\nif x[0]: GO",
    "assert not x()\nif x(): GO",
    'assert not hasattr(x, "y")\nif hasattr(x, "y"): GO',
    "assert not (q := x)\nif (q := x): GO",
    "while x:\n    if not x: GO",
    "if __debug__: GO",
    'if megatron.core.__version__ >= "0.31": GO',
    "def inner(): GO",
    "lambda: GO",
    "class Inner:\n    GO",
    "print(utils.gone)",
    "utils.gone.x()",
    'getattr(utils, "gone")',
    "from megatron.core.utils import gone",
    "from megatron.core.utils import gone as other",
]
SILENT = [
    'if hasattr(utils, "gone"): GO',
    'if not hasattr(utils, "kept"): GO',
    'hasattr(utils, "gone") and GO',
    'GO if hasattr(utils, "gone") else None',
    "try: GO\nexcept AttributeError: pass",
    "try: GO\nexcept (KeyError, AttributeError): pass",
    "try: GO\nexcept Exception: pass",
    "try: GO\nexcept BaseException: pass",
    "try: GO\nexcept: pass",
    "try: GO\nexcept builtins.AttributeError: pass",
    "try: pass\nexcept AttributeError: GO",
    "with contextlib.suppress(AttributeError): GO",
    "with suppress(KeyError, AttributeError): GO",
    "with suppress(Exception): GO",
    "with suppress(AttributeError) as s, lock: GO",
    "assert x\nif not x: GO",
    "assert not x\nif x: GO",
    "assert x != y\nif x == y: GO",
    "assert x == y\nif x != y: GO",
    "assert x is None\nif x is not None: GO",
    "assert x not in y\nif x in y: GO",
    "assert x and y\nif not y: GO",
    "assert not (x or y)\nif y: GO",
    "assert x < y < 3\nif not (x < y < 3): GO",
    "if x: return\nif x: GO",
    "if x: raise ValueError\nif x: GO",
    "if not x: return\nif not x: GO",
    "if x:\n    if not x: GO",
    "if x: pass\nelse:\n    if x: GO",
    "if x: pass\nelif x: GO",
    "assert not utils.kept\nif utils.kept: GO",
    "assert not isinstance(x, int)\nif isinstance(x, int): GO",
    "assert not hasattr(utils, z)\nif hasattr(utils, z): GO",
    "assert not getattr(utils, z)\nif getattr(utils, z): GO",
    "for x in y:\n    assert not x\n    if x: GO",
    "if False: GO",
    "if TYPE_CHECKING: GO",
    "if typing.TYPE_CHECKING: GO",
    'if megatron.core.__version__ < "0.31": GO',
    "return\nGO",
    "raise ValueError\nGO",
    'getattr(utils, "gone", None)',
    "getattr(utils, x)",
]


def test_who_gets_there() -> None:
    """All in one file, a function each."""
    models = [
        build(LIBRARY, label, [("megatron/core/__init__.py", b""), ("megatron/core/utils.py", text)])
        for label, text in RELEASES.items()
    ]
    source: list[str] = HEAD.splitlines()
    body_at: dict[int, str] = {}
    for body in [*RAISES, *SILENT]:
        lines = body.replace("GO", "utils.gone()").splitlines()
        source += [f"async def case_{len(source)}(x, y, z, lock):", *(f"    {line}" for line in lines)]
        body_at |= {len(source) - number: body for number in range(len(lines))}
    text = "\n".join(source).encode()
    uses = uses_of(["a.py"], Project({"a.py"}.__contains__, lambda _: text), *models).affected
    assert [body_at[use.line] for use in uses] == RAISES
