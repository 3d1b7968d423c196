"""A folder with files that list dependencies, and the one that gets ours."""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.migrate.dependencies import addition

LINE = "mcore-unpatch[compat]"


def added(folder: Path, files: dict[str, str]) -> tuple[str, str]:
    """The path of the file that would be written, and its new text."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode())
    change = addition(folder, folder, LINE)
    assert change.before.decode() == files[change.path]
    return change.path, change.after.decode()
