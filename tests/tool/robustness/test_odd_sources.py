"""Odd things where a Megatron source is expected, and commands that are ended early: one line each, nothing left."""

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, unpatch, unpatch_process
from repository import GIT, Repository

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"
INFO = "MAJOR = 0\nMINOR = 19\nPATCH = 2\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repository")
    made.commit({"p.py": PATCH, "requirements.txt": "megatron-core==0.19.2\n"})
    return made


@pytest.mark.parametrize(
    "command",
    [
        ["scan", "--target-mcore"],
        ["check", "--target-mcore"],
        ["upgrade", "--to", "0.19", "--from"],
        ["pin", "--target-mcore"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("name", ["pipe", "pipe.whl"])
def test_a_pipe_is_not_waited_for(command: list[str], name: str, repository: Repository, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    result = unpatch_process(*command, tmp_path / name, cwd=repository.path, env=GIT)
    assert (result.code, result.out) == (ERROR, "")
    assert result.err == f"error: {tmp_path / name} is a named pipe, not a wheel.\n"


@pytest.mark.parametrize(
    "command", [["audit", "diff", "pipe"], ["verify", "--model-config"]], ids=lambda command: command[0]
)
def test_a_pipe_in_the_place_of_a_small_file(command: list[str], repository: Repository) -> None:
    os.mkfifo(repository.path / "pipe")
    result = unpatch(*command, "pipe", cwd=repository.path, env=GIT)
    assert result.code == ERROR
    assert result.err.endswith("cannot be read: a named pipe, not a regular file\n")


@pytest.mark.parametrize(
    "command",
    [
        ["scan", "--target-mcore", "old"],
        ["check", "--target-mcore", "old"],
        ["migrate", "--diff", "--target-mcore", "old"],
        ["upgrade", "--to", "0.19.2", "--from", "old"],
        ["pin", "--target-mcore", "old"],
    ],
    ids=lambda command: command[0],
)
def test_a_source_older_than_every_known_release(command: list[str], repository: Repository) -> None:
    names = ["GPTModel.__init__", "GPTModel.__call__", "GPTModel.forward", "GPTModel.gone"]
    lines = "".join(f"{name} = print\n" for name in names)
    repository.commit({"p.py": f"from megatron.core.models.gpt.gpt_model import GPTModel\n{lines}"})
    files = {"core/package_info.py": "MAJOR = 0\nMINOR = 7\nPATCH = 0\n", "core/__init__.py": ""}
    files["core/models/gpt/gpt_model.py"] = "class GPTModel:\n    def __init__(self): ...\n    def forward(self): ...\n"
    write_files(repository.path.parent / "old", {f"megatron/{name}": text for name, text in files.items()})
    result = unpatch(*command[:-1], repository.path.parent / "old", cwd=repository.path)
    assert "error" not in result.err
    said = result.out + result.err
    assert "GPTModel" in said or "0.7.0" in said or "in code (" in said


def wheel(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def test_an_encrypted_wheel(repository: Repository, tmp_path: Path) -> None:
    file = wheel(tmp_path / "m.whl", {"megatron/core/package_info.py": INFO.encode()})
    data = bytearray(file.read_bytes())
    data[6] |= 1  # the flag, in the member's own header and in the directory
    data[data.index(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(data)
    result = unpatch("scan", "--target-mcore", file, cwd=repository.path)
    assert result.code == ERROR
    assert "is encrypted; pass a plain wheel, or unpack it first." in result.err


def test_a_wheel_with_broken_bytes(repository: Repository, tmp_path: Path) -> None:
    file = wheel(tmp_path / "m.whl", {"megatron/core/package_info.py": INFO.encode() * 9})
    data = bytearray(file.read_bytes())
    start = data.index(b"package_info.py") + len("package_info.py")
    data[start : start + 4] = b"\xff" * 4
    file.write_bytes(data)
    result = unpatch("scan", "--target-mcore", file, cwd=repository.path)
    assert result.code == ERROR
    assert "m.whl cannot be read as a wheel: Error" in result.err


def test_a_wheel_that_unpacks_to_too_much(repository: Repository, tmp_path: Path) -> None:
    members = {"megatron/core/package_info.py": INFO.encode(), "megatron/core/x.py": b"#" * (64 << 20)}
    result = unpatch("scan", "--target-mcore", wheel(tmp_path / "m.whl", members), cwd=repository.path)
    assert result.code == ERROR
    assert "megatron/core/x.py" in result.err
    assert "too large to be read" in result.err


def test_no_empty_lock_is_written(repository: Repository, tmp_path: Path) -> None:
    """A source whose module cannot be read has none of the names."""
    source = tmp_path / "source"
    module = "megatron/core/models/gpt/gpt_model.py"
    write_files(source, {"megatron/core/package_info.py": INFO, module: b"\0", "megatron/core/__init__.py": ""})
    result = unpatch("pin", "--target-mcore", source, cwd=repository.path)
    assert result.code == ERROR
    assert f"{module} is not valid" in result.err
    assert not (repository.path / "unpatch.lock").exists()


@pytest.mark.slow
def test_an_excluded_file_that_cannot_be_read(repository: Repository) -> None:
    repository.commit({"huge.py": b"#" * (65 << 20)})
    result = unpatch("migrate", "--exclude", "huge.py", "--diff", cwd=repository.path)
    assert result.code == CLEAN, result.err


# Says when it starts to wait in a temporary folder, and waits.
WAITS = """
import sys, tempfile, time
from mcore_unpatch import cli
from mcore_unpatch.commands import scan
@cli.app.command()
def wait() -> None:
    with tempfile.TemporaryDirectory(prefix="unpatch-") as folder:
        print(folder, flush=True)
        time.sleep(60)
sys.argv = ["unpatch", "wait"]
cli.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_temporary_folders_go_with_a_command_that_is_ended(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        folder = Path(running.stdout.readline().strip())
        assert folder.is_dir()
        running.send_signal(number)
        running.wait(30)
    assert not folder.exists()


# Ctrl-C while the command is still importing.
STARTS = """
import sys, os, signal, importlib.abc
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests in the background
class Strike(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Strike())
from mcore_unpatch.__main__ import main
main()
"""


# And before the command itself takes over.
BUILDS = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from mcore_unpatch import __main__, cli
cli.app = lambda: os.kill(os.getpid(), signal.SIGINT)
__main__.main()
"""


@pytest.mark.parametrize("code", [STARTS, BUILDS], ids=["imports", "builds"])
def test_interrupted_while_it_starts(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")
