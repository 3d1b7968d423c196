"""The facts that the tool tells of one small program: what it finds, what it edits, what an upgrade does to it.

A line `# file: other.py` begins another file of the program, beside the first.
"""

import re
from collections.abc import Iterator
from difflib import unified_diff
from hashlib import sha256

from planning import planned

from mcore_unpatch.code.index import Index
from mcore_unpatch.code.names import Names
from mcore_unpatch.editing.edits import Options, splice
from mcore_unpatch.effects.judge import Judge
from mcore_unpatch.effects.records import Outcome
from mcore_unpatch.effects.uses import Uses
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.megatron import packed
from mcore_unpatch.patches.find import Finder
from mcore_unpatch.say.effects import mark

PATH = "m.py"
OPTIONS = Options(unsafe_fixes=True, selection=Selection(("",)), target=(0, 19), pinned=lambda _: ((0, 19),))


def told(source: str) -> str:
    """A line for each patch, edit and remark, each patch that an upgrade affects, and each use."""
    first, *others = re.split(r"^# file: (\S+)\n", f"{source}\n", flags=re.MULTILINE)
    texts = {PATH: first, **dict(zip(others[::2], others[1::2], strict=True))}
    files = {path: text.encode() for path, text in texts.items()}
    plan, found = planned(files, OPTIONS)
    lines = [_place(one.path) + _finding(one) for one in found]
    for path, text in texts.items():
        after = splice(files[path], [edit for edit in plan.edits if edit.path == path]).decode()
        lines += [_place(path) + _edit(text, after)] if after != text else []
    lines += [_place(one.path) + f"{one.line} {left.kind}" for one, left in plan.left.items()]
    lines += _of_step(files)
    return "".join(f"\n{line}" for line in dict.fromkeys(lines))


def _of_step(files: dict[str, bytes]) -> Iterator[str]:
    """What the step from 0.16 to 0.19 does to each patch and each use."""
    finder = Finder(Names(Index(files), packed.library()))
    patches = finder.all()
    judge = Judge(finder.names, patches)
    old, new = (packed.details().release(label) for label in ("0.16.1", "0.19.2"))
    for patch in patches:
        effects = judge.step(patch, old, new)
        told_of = [f"{one.exception or one.kind} {one.place.line}" for one in effects if one.kind != Outcome.NONE]
        yield _place(patch.path) + f"{patch.line} is " + ", ".join([mark(effects), *dict.fromkeys(told_of)])
    modules = filter(None, map(finder.names.index.module, files))
    every = (one for module in modules for one in Uses(judge).step(module, old, new))
    for effect in (one for one in every if old.label not in one.releases):
        yield _place(effect.place.path) + (
            f"{effect.place.line} use {effect.exception or effect.kind} {_short(effect.cause.name)}"
        )


def _place(path: str) -> str:
    return "" if path == PATH else f"{path}: "


def _finding(one: Finding) -> str:
    flags = ["temporary"] if one.temporary else []
    runs = [f"on {one.live}"] if str(one.live) != "any" else []
    words = [one.shape, _short(one.target), one.confidence, one.verdict, one.fix or "", one.effect, *runs, *flags]
    return f"{one.line} {one.rule} " + ", ".join(filter(None, words))


def _edit(before: str, after: str) -> str:
    """How many lines go and come, and a digest of those, which tells one edit from another."""
    diff = unified_diff(before.splitlines(), after.splitlines(), n=0)
    changed = [line for line in diff if line[:2] not in ("--", "++", "@@")]
    gone = sum(line.startswith("-") for line in changed)
    return f"edit -{gone} +{len(changed) - gone} {sha256(''.join(changed).encode()).hexdigest()[:6]}"


def _short(text: str) -> str:
    return text.replace("megatron.core.", "~.")
