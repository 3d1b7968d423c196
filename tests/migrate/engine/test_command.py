"""`unpatch migrate` and `unpatch undo`: exit codes, streams, formats."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from sample_repository import CHANGED, FILES, MIGRATED, Sample
from sample_unpatch import unpatch

HERE = Path(__file__).parent


def run(sample: Sample, command: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    arguments = [sys.executable, str(HERE / "sample_command.py"), command, *options]
    return subprocess.run(arguments, cwd=sample.root, capture_output=True)


def test_migrate_and_undo(sample: Sample) -> None:
    """As processes; in the other tests the command runs in this one."""
    done = run(sample, "migrate")
    assert (done.returncode, done.stderr) == (0, b"")
    assert sample.contents() == MIGRATED
    again = run(sample, "migrate")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, b"Nothing to migrate.")
    undone = run(sample, "undo")
    assert (undone.returncode, undone.stdout.splitlines()[0]) == (0, b"Restored 2 files.")
    assert sample.contents() == FILES


def test_the_table(sample: Sample) -> None:
    said = unpatch(sample.root, "migrate").out.decode()
    for path in CHANGED:
        assert f"  {path}:6  calls the hook  exact\n" in said
    for fact in ("list[int]", "megatron-core>=0.18", "mcore-unpatch[compat]", "2 files, +2 -2", "unpatch undo"):
        assert fact in said


def test_a_diff_can_be_applied(sample: Sample, tmp_path: Path) -> None:
    done = unpatch(sample.root, "migrate", "--diff")
    assert done.code == 0
    assert sample.contents() == FILES
    assert b"+install(GPTModel, forward)  # [bold]kept[/bold]\n" in done.out
    assert b" def forward(self, x: list[int]):\r\n" in done.out
    assert b"Would be done: 2 files" in done.err
    patch = tmp_path / "change.patch"
    patch.write_bytes(done.out)
    sample.git("apply", str(patch))
    assert sample.contents() == MIGRATED


def test_check_says_by_exit_code_that_something_would_change(sample: Sample) -> None:
    for options in (["--check"], ["--check", "--diff"], ["--check", "--output-format", "json"]):
        assert unpatch(sample.root, "migrate", *options).code == 1
    assert sample.contents() == FILES
    unpatch(sample.root, "migrate")
    assert unpatch(sample.root, "migrate", "--check").code == 0


def test_edits_as_data(sample: Sample) -> None:
    done = unpatch(sample.root, "migrate", "--check", "--output-format", "json")
    data = json.loads(done.out)
    assert (data["version"], data["written"], data["errors"]) == (1, False, [])
    assert data["root"] == str(sample.root)
    assert [file["path"] for file in data["files"]] == list(CHANGED)
    needed = {"line": "mcore-unpatch[compat]", "python": ""}
    assert data["dependency"] == needed
    edit = data["edits"][0]
    assert {name: edit[name] for name in ("path", "rule", "level", "title", "notes")} == {
        "path": "rl/actor.py",
        "rule": "MCU601",
        "level": "exact",
        "title": "calls the hook",
        "notes": [],
    }
    for side, contents in (("before", FILES), ("after", MIGRATED)):
        for one in data["edits"]:
            span = one[side]
            assert contents[one["path"]][span["start"] : span["end"]].decode() == span["text"]
            assert (span["line"], span["column"], span["end_line"]) == (6, 1, 6)
            assert span["end_column"] == 1 + len(span["text"])
    assert edit["diff"].splitlines()[:2] == ["--- a/rl/actor.py", "+++ b/rl/actor.py"]
    assert data["remarks"][0]["kind"] == "by-hand"
    assert json.loads(unpatch(sample.root, "migrate", "--output-format", "json").out)["written"] is True


def test_refusals_are_errors(sample: Sample) -> None:
    (sample.root / "other.py").write_bytes(b"changed = 1\n")
    done = unpatch(sample.root, "migrate")
    assert done.code == 2
    assert done.err.startswith(b"error: The work tree has uncommitted changes")
    assert b"  other.py (changed)\n" in done.err
    assert unpatch(sample.root, "migrate", "--allow-dirty").code == 0
    assert unpatch(sample.root, "undo", "nowhere").code == 2
    assert unpatch(sample.root, "migrate", "nowhere").code == 2


def test_a_file_that_cannot_be_analysed_stops_nobody_else(sample: Sample) -> None:
    (sample.root / "broken.py").write_bytes(b"import megatron\nGPTModel.forward = = 1\n")
    sample.commit()
    done = unpatch(sample.root, "migrate")
    assert done.code == 2
    assert b"error: broken.py: syntax error on line 2" in done.err
    assert (sample.root / CHANGED[0]).read_bytes() == MIGRATED[CHANGED[0]]


@pytest.mark.parametrize("no_color", [False, True])
def test_colour_on_a_terminal_only(sample: Sample, no_color: bool) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1" if no_color else ""}
    command = [sys.executable, str(HERE / "sample_command.py"), "migrate", "--diff"]
    subprocess.run(command, cwd=sample.root, stdout=theirs, stderr=subprocess.DEVNULL, env=environment, check=True)
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    assert (b"\x1b[32m+install(GPTModel, forward)  # [bold]kept[/bold]\x1b[0m" in shown) is not no_color
    assert b"[bold]kept[/bold]" in shown


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 4096)
    except OSError:  # the other end is closed
        return b""


def test_libcst_is_not_imported_where_nothing_is_to_be_rewritten(tmp_path: Path) -> None:
    """With the real codemods."""
    (tmp_path / "plain.py").write_text("import megatron.core\n")
    code = "import sys; from mcore_unpatch.cli import app; app(standalone_mode=False); print('libcst' in sys.modules)"
    command = [sys.executable, "-c", code, "migrate", "--diff", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
