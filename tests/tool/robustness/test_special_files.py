"""What stands where a file is expected: pipes, sockets, devices, links, folders nobody may read, names without end."""

import os
import socket
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, Result, unpatch, unpatch_process, without_privileges
from repository import GIT, Repository

from mcore_unpatch.repository.reading import replace_file

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"
CONFIGURED = '[tool.unpatch]\nbaseline = "%s"\n'


def run(*arguments: str | Path, cwd: Path) -> Result:
    return unpatch(*arguments, cwd=cwd, env=GIT)


def put(kind: str, path: Path) -> None:
    """Something that is no file."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # the names of sockets are short
        try:
            socket.socket(socket.AF_UNIX).bind(path.name)
        finally:
            os.chdir(here)
    elif kind == "device":
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize("under_git", [True, False])
@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("name", ["bad.py", "bad.patch"])
def test_in_the_place_of_a_source_file(name: str, kind: str, under_git: bool, tmp_path: Path) -> None:
    files = {name: "x = 1\n", "good.py": PATCH}
    if under_git:
        Repository(tmp_path).commit(files)
    else:
        write_files(tmp_path, files)
    put(kind, tmp_path / name)
    result = run("check", "--output-format", "json", cwd=tmp_path)
    assert result.code == ERROR
    words = {"pipe": "a named pipe", "socket": "a socket"}[kind]
    assert result.json["errors"] == [{"path": name, "message": f"{words}, not a regular file"}]
    assert [finding["path"] for finding in result.json["findings"]] == ["good.py"]
    named = run("check", name, cwd=tmp_path)
    assert (named.code, named.err) == (ERROR, f"error: {name} is {words}: name a file or a folder\n")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("pyproject.toml", "pipe"), ("setup.py", "socket"), ("setup.cfg", "device"), ("requirements.txt", "pipe")],
)
def test_in_the_place_of_a_project_file(name: str, kind: str, tmp_path: Path) -> None:
    Repository(tmp_path).commit({"good.py": PATCH})
    put(kind, tmp_path / name)
    for command in (["check"], ["migrate"], ["check", "--base", "HEAD"]):
        result = run(*command, cwd=tmp_path)
        if name == "pyproject.toml":
            assert (result.code, result.out) == (ERROR, "")
            assert f"pyproject.toml cannot be read: a {'link' if kind == 'device' else kind}" in result.err.replace(
                "named ", ""
            )


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_in_the_place_of_a_baseline(kind: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"good.py": PATCH})
    put(kind, tmp_path / "base.json")
    result = run("check", "--baseline", "base.json", cwd=tmp_path)
    assert (result.code, result.out) == (ERROR, "")
    assert "base.json cannot be read: a" in result.err


def test_imports_are_not_followed_out_of_the_repository(tmp_path: Path) -> None:
    """What a link leads to is not read, though an import names it."""
    outside = tmp_path / "outside"
    write_files(
        outside, {"secret.py": "from megatron.core.models.gpt import GPTModel as Model\n", "pkg/inner.py": PATCH}
    )
    inside = tmp_path / "inside"
    use = "from {} import Model\nimport megatron\nModel.forward = print\n"
    write_files(inside, {"a.py": use.format("linked"), "b.py": use.format("folder.secret"), "c.py": use.format("near")})
    (inside / "linked.py").symlink_to(outside / "secret.py")
    (inside / "folder").symlink_to(outside)
    write_files(inside, {"real.py": (outside / "secret.py").read_text()})
    (inside / "near.py").symlink_to("real.py")
    report = unpatch("scan", "--output-format", "json", cwd=inside).json
    certain = [finding["path"] for finding in report["findings"] if finding["confidence"] == "certain"]
    assert certain == ["c.py"], "a link within the repository is followed"


@pytest.mark.slow
@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize("under_git", [True, False])
def test_a_folder_that_cannot_be_read(under_git: bool, tracked: bool, tmp_path: Path) -> None:
    repository = Repository(tmp_path / "r") if under_git else None
    write_files(tmp_path / "r", {"good.py": PATCH, "closed/x.py": PATCH})
    if repository and tracked:
        repository.commit()
    closed = tmp_path / "r/closed"
    closed.chmod(0)
    try:
        result = unpatch_process(
            "check", "--output-format", "json", cwd=tmp_path / "r", env=GIT, prefix=without_privileges()
        )
    finally:
        closed.chmod(0o755)
    assert result.code == ERROR
    (error,) = {(one["path"].partition("/")[0], one["message"]) for one in result.json["errors"]}
    assert error == ("closed", "cannot be read: Permission denied")
    assert [finding["path"] for finding in result.json["findings"]] == ["good.py"]


def test_names_without_end(tmp_path: Path) -> None:
    """Deeper than a path may be long: the folders are made step by step."""
    write_files(tmp_path, {"good.py": PATCH})
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(40):
        os.mkdir("d" * 120, dir_fd=here)
        inner = os.open("d" * 120, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(os.open("deep.py", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    result = run("check", "--output-format", "json", cwd=tmp_path)
    assert result.code == ERROR
    assert [finding["path"] for finding in result.json["findings"]] == ["good.py"]
    assert {error["message"] for error in result.json["errors"]} == {"cannot be read: File name too long"}
    for command in ("scan", "check", "migrate", "undo"):
        result = run(command, "x" * 5000, cwd=tmp_path)
        assert (result.code, result.out) == (ERROR, "")
    os.system(f"rm -rf {tmp_path}/d*")  # shutil, and with it pytest, cannot


class TestBaselines:
    @pytest.fixture
    def repository(self, tmp_path: Path) -> Path:
        (tmp_path / "victim").write_text("mine\n")
        return Repository(tmp_path / "r").path

    @pytest.mark.parametrize("place", ["../victim", "link", "folder/victim", "/tmp/../tmp/nowhere.json"])
    def test_configured_outside(self, place: str, repository: Path, tmp_path: Path) -> None:
        write_files(repository, {"good.py": PATCH, "pyproject.toml": CONFIGURED % place})
        (repository / "link").symlink_to(tmp_path / "victim")
        (repository / "folder").symlink_to(tmp_path)
        for arguments in (["check", "--write-baseline"], ["check"]):
            result = run(*arguments, cwd=repository)
            assert (result.code, result.out) == (ERROR, "")
            assert "leads out of the repository: change it, or name the file with --baseline" in result.err
        assert (tmp_path / "victim").read_text() == "mine\n"

    @pytest.mark.parametrize("name", ["unpatch.baseline.json", "mine.json"])
    def test_never_through_a_link(self, name: str, repository: Path, tmp_path: Path) -> None:
        write_files(repository, {"good.py": PATCH})
        (repository / name).symlink_to(tmp_path / "victim")
        given = [] if name.startswith(".") else ["--baseline", name]
        result = run("check", "--write-baseline", *given, cwd=repository)
        assert (result.code, result.out) == (ERROR, "")
        assert "is a link" in result.err
        assert (tmp_path / "victim").read_text() == "mine\n"

    def test_named_by_the_user_it_may_lie_anywhere(self, repository: Path, tmp_path: Path) -> None:
        write_files(repository, {"good.py": PATCH})
        place = tmp_path / "elsewhere.json"
        assert run("check", "--write-baseline", "--baseline", place, cwd=repository).code == CLEAN
        assert run("check", "--baseline", place, cwd=repository).code == CLEAN
        assert run("check", cwd=repository).code == FINDINGS


NO_TEXT = ("rot13", "hex", "zlib", "bz2", "base64", "uu", "undefined", "punycode")
DEEP = "[" * 100_000


@pytest.mark.parametrize("name", ["pyproject.toml", "base.json"])
def test_deep_files(name: str, tmp_path: Path) -> None:
    write_files(tmp_path, {"good.py": PATCH, name: ("megatron-core = " if "toml" in name else "") + DEEP})
    for command in (
        ["check", "--baseline", "base.json"],
        ["migrate", "--allow-no-vcs"],
    ):
        result = run(*command, cwd=tmp_path)
        if name == "pyproject.toml" or command[0] == "check":
            assert (result.code, result.out) == (ERROR, "")
            assert result.err.count("\n") == 1


@pytest.mark.parametrize("codec", [*NO_TEXT[:2], "utf-7", "unicode_escape", "cp037"])
def test_codecs_that_give_no_text_or_another(codec: str, tmp_path: Path) -> None:
    Repository(tmp_path).commit({"bad.py": f"# coding: {codec}\n{PATCH}".encode(), "good.py": PATCH})
    for command in ("check", "migrate"):
        result = run(command, "--output-format", "json", cwd=tmp_path)
        assert [error["path"] for error in result.json["errors"]] == ["bad.py"], result.out
        assert result.code == ERROR


def test_a_patch_hidden_by_its_encoding(tmp_path: Path) -> None:
    """Python would run it; no reader of bytes would see it."""
    hidden = "# coding: utf-7\n" + PATCH.replace("GPTModel", "+AEc-PTModel").replace("megatron", "+AG0-egatron")
    write_files(tmp_path, {"bad.py": hidden.encode(), "pad.py": b"x = 1\n" * 400_000})
    result = unpatch("check", cwd=tmp_path)
    assert result.code == ERROR
    assert "the encoding utf-7 is not supported: convert to UTF-8" in result.err


@pytest.mark.parametrize("end", ["\r\r\n", "\r", "\r\n", " \\\n\n"])
def test_odd_line_ends(end: str, tmp_path: Path) -> None:
    """Whatever ends the lines: written to, or left with a reason; and every byte comes back."""
    text = "from verl.models.mcore.mtp_patch import patch_postprocess\ndef fast(model):\n    patch_postprocess(model)\n"
    source = text.replace("\n", end).encode()
    Repository(tmp_path).commit({"odd.py": source, "good.py": text})
    result = run("migrate", "--output-format", "json", cwd=tmp_path)
    assert result.code in (CLEAN, ERROR), result.err
    if result.json["written"]:
        assert b"mcore_unpatch.compat" in (tmp_path / "odd.py").read_bytes()
        assert run("undo", cwd=tmp_path).code == CLEAN
    assert (tmp_path / "odd.py").read_bytes() == source


def test_a_comment_before_two_carriage_returns(tmp_path: Path) -> None:
    """Found by fuzzing: it ended the migration of everything."""
    source = """
from megatron.core.models.gpt import GPTModel  # kept\r\r
def fast(self, input_ids, position_ids, attention_mask, labels=None, **kwargs):
    return self.log_probs(self.decoder(input_ids), labels)
GPTModel.forward = fast  # unpatch: ignore\r\r
"""
    Repository(tmp_path).commit({"odd.py": source.encode(), "good.py": PATCH})
    result = run("migrate", "--check", "--unsafe-fixes", "--output-format", "json", cwd=tmp_path)
    assert result.json["errors"] == []
    assert [finding["path"] for finding in result.json["remaining"]] == ["good.py"], "the ignore comment counts"


@pytest.mark.parametrize("mode", [None, 0o600, 0o664, 0o755])
@pytest.mark.parametrize("content", ["text\n", b"bytes\n"])
def test_a_file_that_is_replaced_keeps_its_mode_and_a_new_one_is_for_all_to_read(
    tmp_path: Path, mode: int | None, content: str | bytes
) -> None:
    file = tmp_path / "lock.toml"
    if mode is not None:
        file.write_text("before\n")
        file.chmod(mode)
    replace_file(file, content)
    assert file.read_bytes() == (content if isinstance(content, bytes) else content.encode())
    assert file.stat().st_mode & 0o777 == (0o644 if mode is None else mode)
    assert [one.name for one in tmp_path.iterdir()] == ["lock.toml"]
