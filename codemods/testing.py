"""For the tests of a codemod: its examples, migrated as `unpatch migrate` does it, on files held in memory."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import PurePosixPath

from mcore_unpatch.codemods import registry
from mcore_unpatch.codemods.codemod import Codemod, Example
from mcore_unpatch.codemods.planner import plan
from mcore_unpatch.editing.edits import Options, Repository, splice
from mcore_unpatch.findings import verdicts
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.stacks.revision import Judged, Revision, Stack
from mcore_unpatch.survey import guards
from mcore_unpatch.survey.search import Search

Files = Mapping[str, bytes]


def check_examples(codemod: type[Codemod]) -> None:
    """Every example of an installed codemod; raises `AssertionError` with what is wrong."""
    known = [known for known in registry.codemods() if type(known) is codemod]
    _hold(bool(known), f"{codemod.__name__} is not installed: name it under the entry point group {registry.GROUP!r}")
    for example in codemod.examples:
        check_example(known[0], example)


def check_example(codemod: Codemod, example: Example) -> None:
    """`before` is found and becomes `after`, which is Python and which a second run does not change."""
    # The scanner looks into files that say Megatron; an example need not. Its rule may be off by default.
    path, options = example.path, Options(unsafe_fixes=example.unsafe, selection=Selection(("",)))
    before, after = (text.strip().encode() + b"\n" for text in (example.before, example.after or example.before))
    ast.parse(after)
    told = findings({path: before}, options)
    _hold(example.rule in {finding.rule for finding in told}, f"{example.rule} is not found in its example")
    new = migrated({path: before}, options)[path]
    _hold(new == after, f"the example of {codemod.name} is migrated to other code:\n{_diff(after, new)}")
    again = migrated({path: after}, options)[path]
    _hold(again == after, f"a second migration changes the example of {codemod.name} again:\n{_diff(after, again)}")


def _hold(is_so: bool, otherwise: str) -> None:
    if not is_so:  # no `assert`: pytest would rewrite its words, and `python -O` leaves it out
        raise AssertionError(otherwise)


def _diff(expected: bytes, new: bytes) -> str:
    before, after = expected.decode().splitlines(), new.decode().splitlines()
    return "\n".join(unified_diff(before, after, "expected", "migrated", lineterm=""))


def findings(files: Files, options: Options) -> list[Finding]:
    """What a scan of some files finds, ignore comments and the selection considered."""
    search = Search(files.__getitem__, _present(files).__contains__, lambda _: (options.target,))
    told, _ = search(sorted(files))
    told = guards.mark(told, Project(_present(files).__contains__, files.__getitem__))
    settled = verdicts.settled(told, dict.fromkeys(files, Judged((Stack(Revision("", (options.target,))),))))
    settled = guards.settled(settled, lambda _: (), required=bool(options.plain("")))
    open_ones = (one for one in settled if options.wants(one.rule) and one.verdict != verdicts.DONE)
    return sorted(open_ones, key=lambda finding: finding.sort_key)


def migrated(files: Files, options: Options) -> dict[str, bytes]:
    """Some files after a migration."""
    repository = Repository(sorted(files), _present(files).__contains__, files.__getitem__)
    made = plan(repository, findings(files, options), options)
    return {path: splice(data, [edit for edit in made.edits if edit.path == path]) for path, data in files.items()}


def _present(files: Files) -> set[str]:
    return {*files, *(folder.as_posix() for path in files for folder in PurePosixPath(path).parents)}
