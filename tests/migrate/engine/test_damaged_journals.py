"""A journal that is not as we write it is not used, whatever is wrong with it, and the user is told where it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcore_unpatch.errors import UsageError
from mcore_unpatch.writing import journal
from mcore_unpatch.writing.journal import State

TOKEN = "0123456789ab"
ENTRY = {"path": "a/b.py", "before": "x", "after": "y"}
DAMAGED: dict[str, Any] = {
    "no Python": b"{",
    "no text": b"\xff\xfe",
    "a list": [],
    "a number": 3,
    "no version": {"entries": [ENTRY]},
    "another version": {"version": 2, "entries": [ENTRY]},
    "no entries": {"version": 1},
    "entries that are none": {"version": 1, "entries": 3},
    "an entry that is none": {"version": 1, "entries": [3]},
    "a field too few": {"version": 1, "entries": [{"path": "a", "before": "x"}]},
    "a field too many": {"version": 1, "entries": [{**ENTRY, "more": 1}]},
    "endless": b"[" * 200_000,
    **{
        f"{field} {value!r}": {"version": 1, "entries": [{**ENTRY, field: value}]}
        for field, value in [
            *(
                ("path", path)
                for path in ("", "/a", "a//b", "a/", "../a", "a/../b", "./a", ".git/a", "a/.GIT/b", "a\0b")
            ),
            *((field, value) for field in ENTRY for value in (3, None)),
        ]
    },
}


def state(tmp_path: Path) -> State:
    folder = tmp_path / "state"
    (folder / TOKEN).mkdir(parents=True, mode=0o700)
    folder.chmod(0o700)
    return State(folder, tmp_path, folder / "lock")


def write(kept: State, content: Any) -> None:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    (kept.journal_folder(TOKEN) / "journal.json").write_bytes(data)


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_journal(tmp_path: Path, content: Any) -> None:
    kept = state(tmp_path)
    write(kept, content)
    with pytest.raises(UsageError, match=r"cannot be used \(.*\); nothing was changed") as error:
        journal.load(kept, TOKEN)
    assert str(kept.folder) in str(error.value)


def test_no_journal(tmp_path: Path) -> None:
    kept = state(tmp_path)
    for token in (TOKEN, "ba9876543210"):
        with pytest.raises(UsageError, match="cannot be used"):
            journal.load(kept, token)


def test_a_journal_as_we_write_it(tmp_path: Path) -> None:
    kept = state(tmp_path)
    for path in ("a/b.py", "a.py", ".github/x.py", "a.git/b.py", "..a/b.py"):
        write(kept, {"version": 1, "entries": [{**ENTRY, "path": path}, ENTRY]})
        assert [entry.path for entry in journal.load(kept, TOKEN).entries] == [path, "a/b.py"]
