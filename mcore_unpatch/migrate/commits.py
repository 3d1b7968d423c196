"""One commit for each change of a migration: what and why, with the hooks of the repository at work."""

from __future__ import annotations

from collections.abc import Sequence

from mcore_unpatch.editing.edits import splice
from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate.changes import CodeChange, changes
from mcore_unpatch.migrate.outcome import Outcome
from mcore_unpatch.repository import git
from mcore_unpatch.scanner.sources.parsing import why_not


def commit(outcome: Outcome) -> list[str]:
    """Write and commit change by change; the titles. Raises `UsageError` where one is refused: those before it stay."""
    top, made = outcome.survey.found.top, changes(outcome)
    if git.run(top, "diff", "--cached", "--name-only"):
        raise UsageError("Something is staged already, and would be part of the first commit: commit or unstage it.")
    before = {item.path: item.before for item in outcome.rewrites}
    steps = [_after(made[: number + 1], before) for number in range(len(made))]
    for files in steps:
        for path, data in files.items():
            if why := why_not(data, path):
                raise UsageError(f"{path} would not compile between two commits ({why}); use `unpatch migrate`.")
    earlier = before
    for number, (change, files) in enumerate(zip(made, steps, strict=True)):
        mine = list(change.places)
        for path in mine:
            if any(edit.deletes for edit in change.edits if edit.path == path):
                (top / path).unlink()
            else:
                (top / path).write_bytes(files[path])
        if failed := git.commit(top, mine, change.title, change.message):
            for path in mine:
                (top / path).write_bytes(earlier[path])
            git.run(top, "reset", "--quiet", "--", *mine)
            done = f"{number} of {len(made)} commits were made"
            raise UsageError(f"git refused a commit ({change.title}):\n{failed}\nIts files are as before; {done}.")
        earlier = files
    return [change.title for change in made]


def _after(made: Sequence[CodeChange], before: dict[str, bytes]) -> dict[str, bytes]:
    """The files with some of the changes made."""
    edits = [edit for change in made for edit in change.edits]
    return {path: splice(data, [edit for edit in edits if edit.path == path]) for path, data in before.items()}
