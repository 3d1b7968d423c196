"""Take back the last migration, exactly, or say why that cannot be."""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.discover import project_root
from mcore_unpatch.errors import UsageError
from mcore_unpatch.migrate import files, journal, transaction
from mcore_unpatch.migrate.journal import Journal, Rewrite
from mcore_unpatch.migrate.lock import exclusive
from mcore_unpatch.migrate.recovery import recover
from mcore_unpatch.migrate.state import interrupted, locate


def undo(folder: Path) -> list[str]:
    """Give the files of the last migration, finished or killed, their original content; the paths of them.

    Raises `UsageError`, with nothing written, if there is none or if one of its files has changed since.
    """
    top = project_root(folder.resolve())
    state = locate(top)
    state.refuse_inside_work_tree()
    with exclusive(state.lock_file):
        if interrupted(top):
            return recover(top)
        token = state.load().last
        if token is None:
            raise UsageError(f"no migration of {top} is known that could be taken back")
        last = journal.load(state, token)
        rewrites = _reversed(last)
        transaction.write(state, rewrites, remember=False)
    return [item.path for item in rewrites]


def _reversed(last: Journal) -> list[Rewrite]:
    rewrites: list[Rewrite] = []
    changed: list[str] = []
    for index, entry in enumerate(last.entries):
        current = files.content_of(last.target(index))
        original = last.original(index).read_bytes()
        if current is None or files.digest(current) != entry.after:
            changed.append(f"{entry.path} ({'deleted' if current is None else 'changed'})")
        elif files.digest(original) != entry.before:
            changed.append(f"{entry.path} (its copy {last.original(index)} is damaged)")
        else:
            rewrites.append(Rewrite(entry.path, current, original))
    if changed:
        listed = "".join(f"\n  {line}" for line in changed)
        raise UsageError(
            f"files are no longer what the migration made of them, and nothing was written:{listed}\n"
            f"Bring them back to that state and run `unpatch undo` again; the originals lie in {last.folder}"
        )
    return rewrites
