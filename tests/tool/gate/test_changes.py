"""What a change brings, every pair of what stood there before and what stands there now: what is new, what is woken.

The answers stand in `changes.txt`, a line for each pair; after a change that is meant, run
this once with `APPROVE=1` and read the diff.
"""

import os
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

from mcore_unpatch.codemods.testing import findings
from mcore_unpatch.editing.edits import Options
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.gate.awake import SourceTree, awakened
from mcore_unpatch.gate.compare import _key, new_findings

SAID = Path(__file__).with_name("changes.txt")
OPTIONS = Options(selection=Selection(("",)))
GPT = "from megatron.core.models.gpt.gpt_model import GPTModel\ndef f(self): ...\n"
PUT = "GPTModel.forward = f\n"
INSTALLERS = {
    "plain": f"def install():\n    {PUT}",
    "off unless asked": f"def install(on=False):\n    if on:\n        {PUT}",
    "on unless asked": f"def install(on=True):\n    if on:\n        {PUT}",
    "by name alone": f"def install(*, on=False):\n    if on:\n        {PUT}",
    "leaves early": f"def install(on=None):\n    if not on:\n        return\n    {PUT}",
    "of a method": f"class Patches:\n    def install(self, on=True):\n        {PUT}",
    "of a constructor": f"class Patches:\n    def __init__(self, on=True):\n        {PUT}",
    "inside another": f"def install(on=True):\n    def inner():\n        {PUT}    inner()\n",
    "through another": f"def _put():\n    {PUT}def install(on=True):\n    _put()\n",
    "through two": f"def _put():\n    {PUT}def _more():\n    _put()\ndef install(on=True):\n    _more()\n",
    "through another file": "from q import put\ndef install(on=True):\n    put()\n",
    "through two files": "import q, r\ndef install(on=True):\n    r.two()\n",
    "through one that nobody asks for": "from q import put\ndef install(on=True): ...\ndef other():\n    put()\n",
    "calls itself": f"def install(on=True):\n    {PUT}    install(on)\n",
    "each calls the other": f"def _put(on):\n    {PUT}    install(on)\ndef install(on=True):\n    _put(on)\n",
    "decorated": f"@once\ndef install(on=True):\n    {PUT}",
    "in no function": PUT,
}
BESIDE = f"{GPT}def put():\n    {PUT}"  # the file q of those that import it
TOUCHED = ("each calls the other", "of a constructor")  # which the change has otherwise, too
CALLERS = {
    "nobody": "x = 1",
    "imports it": "from p import install",
    "calls": "from p import install\ninstall()",
    "on": "from p import install\ninstall(True)",
    "on by name": "from p import install\ninstall(on=True)",
    "off": "from p import install\ninstall(False)",
    "off by name": "from p import install\ninstall(on=False)",
    "some list": "from p import install\ninstall(*some)",
    "some words": "from p import install\ninstall(**some)",
    "unknown": "from p import install\ninstall(some)",
    "of the module": "import p\np.install(True)",
    "never": "from p import install\nif False:\n    install(True)",
    "in a newer Megatron": "import megatron.core\nfrom p import install\n"
    "if megatron.core.__version__ >= '0.99':\n    install(True)",
    "in main": "from p import install\ndef main():\n    install(True)",
    "main runs": "from p import install\ndef main():\n    install(True)\nmain()",
    "passed on": "from p import install\nrun(install)",
    "object": "from p import Patches\nPatches()",
    "method": "from p import Patches\nPatches().install()",
}
WAYS = {
    "none": {},
    "there": {"p.py": GPT + PUT},
    "elsewhere": {"q.py": GPT + PUT},
    "twice": {"p.py": GPT + PUT + PUT},
    "in both": {"p.py": GPT + PUT, "q.py": GPT + PUT},
    "in a test": {"tests/test_p.py": GPT + PUT},
    "undone": {
        "p.py": f"{GPT}def test():\n    old = GPTModel.forward\n    {PUT}    yield\n    GPTModel.forward = old\n"
    },
    "in a function": {"p.py": f"{GPT}def test():\n    {PUT}"},
    "newer alone": {"p.py": f"import megatron.core\n{GPT}if megatron.core.__version__ >= '0.19':\n    {PUT}"},
    "older alone": {"p.py": f"import megatron.core\n{GPT}if megatron.core.__version__ < '0.19':\n    {PUT}"},
    "never": {"p.py": f"{GPT}if False:\n    {PUT}"},
    "other spaces": {"p.py": f"{GPT}GPTModel . forward=f\n"},
    "another function": {"p.py": f"{GPT}GPTModel.forward = g\n"},
    "another target": {"p.py": f"{GPT}GPTModel.backward = f\n"},
}


def test_every_change() -> None:
    said = "".join(f"{line}\n" for line in (*_woken(), *_new()))
    if "APPROVE" in os.environ:
        SAID.write_text(said)
    assert said.splitlines() == SAID.read_text().splitlines(), "if this is meant: run it once with APPROVE=1"


def _woken() -> Iterator[str]:
    for installer, before in product(INSTALLERS, ("nobody", "off", "in main")):
        there, here = {"p.py": GPT + INSTALLERS[installer]}, {"p.py": f"{GPT}{INSTALLERS[installer]}# in the change\n"}
        here = here if installer in TOUCHED else there
        beside = {"q.py": BESIDE} if " q" in INSTALLERS[installer] else {}
        beside |= {"r.py": "import q\ndef two():\n    q.put()\n"} if " r" in INSTALLERS[installer] else {}
        by = []
        for after, caller in CALLERS.items():
            then, now = (f"{CALLERS[before]}\n", f"{caller}\n")
            brought = _brought({**there, **beside, "t.py": then}, {**here, **beside, "t.py": now})
            by += [f"{after} ({_since(one)})" for one in brought]
        yield f"{installer}; {before}, then: {', '.join(by)}".rstrip()


def _new() -> Iterator[str]:
    for before in WAYS:
        for after, files in WAYS.items():
            told = [f"{one.path}:{one.line} {_since(one)}".rstrip() for one in _brought(WAYS[before], files)]
            yield f"{before}, then {after}: {', '.join(told)}".rstrip()


def _since(finding: Finding) -> str:
    return finding.message.rpartition("; before this change ")[2] if "before this" in finding.message else "new"


def _brought(before: dict[str, str], after: dict[str, str]) -> list[Finding]:
    """What is new with a change, and what it wakes."""
    old, new = ({path: text.encode() for path, text in files.items()} for files in (before, after))
    was, is_now = (_found(tuple(files.items())) for files in (old, new))
    brought = new_findings(is_now, was, {}, _versions)
    changed = {path: old.get(path, b"") for path in {*old, *new} if old.get(path) != new.get(path)}

    def read(path: str) -> bytes:
        if path not in new:
            raise FileNotFoundError(path)
        return new[path]

    tree = SourceTree(sorted(new), new.__contains__, read, _versions)
    then = tree.before(new.keys() - old.keys(), {path: old[path] for path in changed if path in old})
    there = [one for one in is_now if one not in brought]
    return brought + list(awakened(tree, [then], changed, lambda one: _alike(one, was), there))


@cache
def _found(files: tuple[tuple[str, bytes], ...]) -> list[Finding]:
    return findings(dict(files), OPTIONS)


def _alike(finding: Finding, others: list[Finding]) -> list[Finding]:
    return [one for one in others if _key(one, "") == _key(finding, "")]


def _versions(_: str) -> tuple[tuple[int, int], ...]:
    return ((0, 18), (0, 19))
