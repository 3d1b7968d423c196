"""What the codemods find themselves: uses of patches known by name, on `ast` and in the few files that say one."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from mcore_unpatch.codemods.nemo_rl.contract import NEMO_RL
from mcore_unpatch.codemods.verl.contract import VERL
from mcore_unpatch.findings import FileError, Finding
from mcore_unpatch.scanner.engine import Part, Task
from mcore_unpatch.scanner.source import Unreadable

if TYPE_CHECKING:
    from mcore_unpatch.codemods.edits import Repository

# A file without one of these has nothing to do with any codemod that finds something itself.
WORDS: tuple[bytes, ...] = (*VERL.words, *NEMO_RL.words)


def complete(part: Part, task: Task) -> None:
    """Add what the codemods find to what the scanner found: in the files that say one of the words."""
    known = {error.path for error in part.errors}
    asked = [path for path in part.saying if path not in known]
    if not asked:
        return
    from mcore_unpatch.codemods.edits import Repository
    from mcore_unpatch.codemods.nemo_rl.findings import flags
    from mcore_unpatch.codemods.shims.exports import Exports
    from mcore_unpatch.codemods.shims.findings import definitions, look, uses

    repository = Repository(asked, task.exists, task.read)
    repository.paths = _with_those_between(repository, asked)
    found: list[Finding] = []
    errors: set[FileError] = set()
    for contract in (VERL, NEMO_RL):
        exports = Exports(contract, repository)
        found += [*uses(exports, look(exports)), *definitions(exports, part.findings)]
        errors.update(exports.errors)
        if contract is NEMO_RL:
            found += flags(exports)
    wanted = set(asked)
    part.findings += [one for one in found if one.path in wanted]
    part.errors += sorted(one for one in errors if one.path in wanted)


def _with_those_between(repository: Repository, asked: list[str]) -> tuple[str, ...]:
    """The files that were asked for, and others of the repository that may pass a name on to them."""
    found = dict.fromkeys(asked)
    waiting = list(asked)
    while waiting:
        path = waiting.pop()
        try:
            nodes = repository.source(path).every(ast.ImportFrom)
        except (Unreadable, OSError):
            continue
        for node in nodes:
            target = repository.locate(path, node.module or "", node.level)
            if target is not None and target not in found and _says(repository, target):
                found[target] = None
                waiting.append(target)
    return tuple(found)


def _says(repository: Repository, path: str) -> bool:
    try:
        data = repository.data(path)
    except (Unreadable, OSError):
        return False
    return any(word in data for word in WORDS)
