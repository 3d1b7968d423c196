"""What comes out: nothing of a scanned file acts on a terminal or in a log; no reader changes how a command ends."""

import io
import itertools
import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch, unpatch_process
from repository import GIT, Repository

from mcore_unpatch.commands import output

pytestmark = pytest.mark.slow
IMPORT = "from megatron.core.models.gpt import GPTModel\n"
PATCH = f"{IMPORT}GPTModel.forward = print\n"
# One that `migrate` writes to.
WRITTEN = """from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LinearForLastLayer


def critic(config, spec):
    model = GPTModel(config=config, transformer_layer_spec=spec, vocab_size=64, max_sequence_length=16)
    model.output_layer = LinearForLastLayer(input_size=config.hidden_size, output_size=1)  # %s
    return model
"""
TITLE = "\x1b]0;owned\x07"  # sets the title of a terminal
CLEAR = "\x1b[2J"
ACTING = [*(chr(code) for code in range(32) if chr(code) not in "\t\n\r"), "\x7f", "\x9b", "\u202e", "\u2028"]
NAMES = [
    f"{CLEAR}a.py",
    "line\n::error::planted.py",
    "carriage\r::error::planted.py",
    "::error::planted.py",
    "##[error]planted.py",
    "\u202etxt.py",
]


@pytest.fixture
def hostile(tmp_path: Path) -> Repository:
    """Names and source lines full of what a terminal or a runner would obey."""
    made = Repository(tmp_path / "repository")
    line = f"GPTModel.forward = print  # {TITLE}{CLEAR}##[error]x ::error::x\n"
    target = f"import types\nsetattr(GPTModel, 'forward{CLEAR}\\n::error::x', print)\n"
    made.commit({name: (IMPORT + line + target).encode() for name in NAMES} | {"bad.py": b"import megatron\n(\n"})
    return made


def check_harmless(text: str) -> None:
    """No character acts, and no line is a command that was not ours."""
    for character in ACTING:
        assert character not in text, repr(text)
    for line in text.splitlines():
        assert not line.strip().startswith("::error::"), line
        assert "##[" not in line or line.startswith("::"), line


@pytest.mark.parametrize(
    ("command", "style"),
    [
        *itertools.product(["scan", "scan --verbose", "check", "check --base HEAD"], ["text", "github"]),
        ("migrate", "text"),
    ],
)
def test_in_a_pipe(command: str, style: str, hostile: Repository) -> None:
    result = unpatch(*command.split(), "--output-format", style, cwd=hostile.path, env=GIT)
    check_harmless(result.out)
    check_harmless(result.err)
    if command == "scan --verbose" and style == "text":
        assert r"\x1b[2Ja.py" in result.out
        assert r"line\n::error::planted.py" in result.out
        assert r"# \x1b]0;owned\x07\x1b[2J#\x23[error]x ::error::x" in result.out


def terminal(*command: str, cwd: Path) -> tuple[str, int]:
    """What a terminal gets, and the exit code."""
    ours, theirs = pty.openpty()
    full = [sys.executable, "-m", "mcore_unpatch", *command]
    env = {**os.environ, **GIT, "TERM": "xterm", "COLUMNS": "80"}
    process = subprocess.Popen(full, cwd=cwd, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    text = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # how Linux says that the other end is closed
            break
        if not data:
            break
        text += data
    os.close(ours)
    return text.decode(), process.wait()


@pytest.mark.parametrize(
    "command",
    [
        "scan",
        pytest.param("check", marks=pytest.mark.every_case),
        pytest.param("migrate --unsafe-fixes --check", marks=pytest.mark.every_case),
        "migrate --unsafe-fixes --diff",
    ],
)
def test_on_a_terminal(command: str, hostile: Repository) -> None:
    hostile.commit({f"{CLEAR}w.py": (WRITTEN % f"{TITLE}{CLEAR}").encode()})
    text, _ = terminal(*command.split(), cwd=hostile.path)
    assert TITLE not in text
    assert CLEAR not in text
    assert "\x07" not in text
    assert r"\x1b[2J" in text
    assert "\x1b[" in text, "our own colours stay"


def test_messages(tmp_path: Path) -> None:
    """Names in errors that end a command."""
    repository = Repository(tmp_path / "repository")
    name = f"x\n::error::{CLEAR}.py"
    repository.commit({name: (WRITTEN % "a").encode(), "tracked.py": "x = 1\n"})
    repository.write({name: (WRITTEN % "b").encode()})
    for arguments in (
        ["migrate", "--unsafe-fixes"],
        ["scan", f"no{name}"],
        ["undo", f"no{name}"],
        ["scan", "--base", CLEAR],
    ):
        result = unpatch(*arguments, cwd=repository.path, env=GIT)
        assert result.code == ERROR
        check_harmless(result.err)


def test_data_stays_exact(hostile: Repository) -> None:
    report = unpatch("check", "--output-format", "json", cwd=hostile.path).json
    assert {finding["path"] for finding in report["findings"]} == set(NAMES)


@pytest.mark.parametrize("command", ["scan", pytest.param("check", marks=pytest.mark.every_case), "migrate"])
@pytest.mark.parametrize("locale", ["C", pytest.param("en_US.ISO-8859-1", marks=pytest.mark.every_case)])
def test_json_in_any_locale(command: str, locale: str, tmp_path: Path) -> None:
    repository = Repository(tmp_path)
    repository.commit({"naïve 世界.py": (WRITTEN % "é 世界").encode()})
    settings = {**GIT, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    result = unpatch_process(*command.split(), "--output-format", "json", cwd=tmp_path, env=settings)
    assert json.loads(result.out)["version"] == 1


class TestReaders:
    """`| head -1` and its kin, in a real shell."""

    @pytest.fixture
    def many(self, tmp_path: Path) -> Path:
        repository = Repository(tmp_path / "many")
        files = {f"m{number}.py": PATCH * 40 for number in range(8)}  # more than a pipe holds
        repository.commit({**files, "w.py": (WRITTEN % "a").encode()})
        return repository.path

    def shell(self, line: str, cwd: Path) -> tuple[int, str]:
        """The exit code of the first command of a pipe, and stderr."""
        run = f"{shlex.quote(sys.executable)} -m mcore_unpatch"
        script = f"{line.replace('unpatch', run, 1)}; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(
            ["bash", "-c", script], cwd=cwd, env={**os.environ, **GIT}, capture_output=True, text=True
        )
        assert "Traceback" not in done.stderr
        assert "internal error" not in done.stderr
        assert "Exception ignored" not in done.stderr
        return done.returncode, done.stderr

    @pytest.mark.parametrize("style", ["text", pytest.param("sarif", marks=pytest.mark.every_case)])
    def test_check_with_findings(self, style: str, many: Path) -> None:
        assert self.shell(f"unpatch check --output-format {style} | head -1 >/dev/null", many)[0] == FINDINGS
        assert self.shell(f"unpatch check --output-format {style} | true", many)[0] == FINDINGS

    def test_scan(self, many: Path) -> None:
        assert self.shell("unpatch scan | head -1 >/dev/null", many) == (CLEAN, "")
        (many / "bad.py").write_text("import megatron.core\n(\n")
        assert self.shell("unpatch rules | true", many)[0] == CLEAN
        assert self.shell("unpatch scan 2>&1 | true", many)[0] == ERROR

    @pytest.mark.parametrize(
        ("style", "reader"),
        [("json", "head -1 >/dev/null"), pytest.param("text", "true", marks=pytest.mark.every_case)],
    )
    def test_migrate_has_migrated(self, style: str, reader: str, many: Path) -> None:
        assert self.shell(f"unpatch migrate --unsafe-fixes --output-format {style} | {reader}", many)[0] == CLEAN
        assert "add_value_head" in (many / "w.py").read_text()
        assert self.shell(f"unpatch undo | {reader}", many)[0] == CLEAN
        assert "add_value_head" not in (many / "w.py").read_text()

    def test_a_closed_output(self, many: Path) -> None:
        assert self.shell("unpatch check >&- 2>&- <&-", many)[0] == FINDINGS
        assert self.shell("unpatch migrate --unsafe-fixes >&- 2>&-", many)[0] == CLEAN
        assert (many / "w.py").read_text().count("import add_value_head") == 1
        assert self.shell("unpatch undo >&-", many)[0] == CLEAN
        assert (many / "w.py").read_text() == WRITTEN % "a"

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
    def test_a_full_disk(self, many: Path) -> None:
        for command in ("check", "rules"):
            code, told = self.shell(f"unpatch {command} >/dev/full", many)
            assert (code, told.splitlines()[-1]) == (
                ERROR,
                "error: the report could not be written: No space left on device",
            )
        code, told = self.shell("unpatch migrate --unsafe-fixes >/dev/full", many)
        assert code == ERROR
        assert "error: 1 file was migrated, but the report could not be written" in told
        assert self.shell("unpatch check >/dev/full 2>/dev/full", many)[0] == ERROR


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path) -> None:
    """Every module the tool could want, planted where it is run."""
    trap = f"open({str(tmp_path / 'trace')!r}, 'a').write(__name__)\n"
    planted = "typer click rich libcst json ast re subprocess tomllib dataclasses fnmatch tempfile symtable tokenize"
    planted += " hashlib difflib multiprocessing packaging shutil enum pathlib typing functools yaml torch"
    files: dict[str, str | bytes] = {f"{name}.py": trap for name in planted.split() if name != "rich"}
    write_files(tmp_path / "repo", {**files, "rich/__init__.py": trap, "w.py": (WRITTEN % "a").encode()})
    for command in ("--help", "scan", "check --output-format sarif", "migrate --unsafe-fixes --allow-no-vcs", "undo"):
        result = unpatch_process(
            *command.split(), cwd=tmp_path / "repo", env={"XDG_STATE_HOME": str(tmp_path / "state")}
        )
        assert result.code in (CLEAN, FINDINGS)
    assert not (tmp_path / "trace").exists()


def test_a_bar_on_a_terminal_and_nothing_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = {}
    for on_terminal in (True, False):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda on_terminal=on_terminal: on_terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        clock = iter((0.0, 0.5, 2.0))
        monkeypatch.setattr(output.time, "monotonic", lambda clock=clock: next(clock))
        with output.Progress() as progress:
            progress(1, 4)  # too early to show
            progress(2, 4)
        shown[on_terminal] = stream.getvalue()
    bar = f"[{'#' * 15}{' ' * 15}] 2 of 4 files"
    assert shown == {True: f"\r{bar}\r\r{' ' * len(bar)}\r", False: ""}
