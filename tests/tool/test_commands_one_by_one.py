"""What single commands say of none, one and many, and of each thing that may be missing."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checking import write_files
from command import CLEAN, unpatch

import mcore_unpatch
from mcore_unpatch import pins
from mcore_unpatch.audit.report import AuditReport, CodeOrigin, Deviation, LivePatch
from mcore_unpatch.commands import audit, doctor, output, rules, stacks, upgrade
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.report import lines
from mcore_unpatch.repository import git
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.stacks.revision import Revision, Said, Stack
from mcore_unpatch.survey.parallel import may_patch
from mcore_unpatch.survey.survey import ScanOptions

MAIN = compile((Path(mcore_unpatch.__file__).parent / "__main__.py").read_text(), "__main__.py", "exec")
ROLL = "megatron.core.transformer.multi_token_prediction.roll_tensor"
PREPROCESS = "megatron.core.models.gpt.gpt_model.GPTModel._preprocess"
PATCH = """
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.multi_token_prediction import roll_tensor

    def patched(self, *args, **kwargs):
        return roll_tensor(args[0])

    GPTModel._preprocess = patched
"""


@pytest.mark.parametrize(
    ("name", "facts", "kept"),
    [
        (PREPROCESS, "", (False, True)),
        (PREPROCESS, 'why = "x"\n', (False, True)),
        (ROLL, "", (False, True)),
        (ROLL, 'why = "x"\n', (True, True)),
        (ROLL, 'owner = "Ada"\n', (True, True)),
        ("megatron.core.utils", "", (True, True)),  # somebody asked for it
    ],
)
def test_what_stays_of_a_lock_when_the_patch_is_gone(
    name: str, facts: str, kept: tuple[bool, bool], tmp_path: Path
) -> None:
    """Where all was looked at, and where only a part of it was."""
    write_files(
        tmp_path,
        {"a.py": PATCH, "b/c.py": "x = 1\n", "requirements.txt": "megatron-core==0.18.2\n", "pyproject.toml": ""},
    )
    assert unpatch("pin", cwd=tmp_path).code == unpatch("pin", "megatron.core.utils", cwd=tmp_path).code == CLEAN
    lock = tmp_path / pins.LOCK
    assert set(pins.load(lock).pins) == {PREPROCESS, ROLL, "megatron.core.utils"}
    text = lock.read_text().replace(f'name = "{name}"\n', f'name = "{name}"\n{facts}')
    write_files(tmp_path, {"a.py": "x = 1\n"})
    for paths, stays in zip(((), ("b",)), kept, strict=True):
        lock.write_text(text)
        result = unpatch("pin", *paths, cwd=tmp_path)
        assert (result.code, name in pins.load(lock).pins) == (CLEAN, stays)
        assert (f"Dropped {name}, which is no longer patched{': x' * ('why' in facts)}" in result.err) is not stays


@pytest.mark.parametrize(
    ("named", "notes"),
    [
        (["0.18.0"], []),
        ([">=0.18,<0.19"], ["is a range: compared from 0.18.0 and 0.18.2."]),
        (["0.18.0", ">=0.17,<0.18"], ["is a range: compared from 0.17.0 and 0.17.1."]),
        ([">=0.18,<0.19", ">=0.17,<0.18"], ["compared from 0.18.0 and 0.18.2.", "compared from 0.17.0 and 0.17.1."]),
        (
            [">=0.18,<0.19", ">=0.17,<0.18", ">=0.16,<0.17"],
            ["3 Megatrons that you run are no releases; `unpatch stacks`"],
        ),
    ],
)
def test_what_an_upgrade_says_it_is_compared_from(
    named: list[str], notes: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, text in enumerate(named):
        version = text if text[0] in "<>=" else f"=={text}"
        write_files(tmp_path, {f"p{number}/requirements.txt": f"megatron-core{version}\n", "pyproject.toml": ""})
    models = upgrade._in_use([tmp_path], ScanOptions())
    said = [line for line in " ".join(capsys.readouterr().err.split()).split("note: ") if line]
    assert len(said) == len(notes)
    assert all(any(note in line for line in said) for note in notes), said
    assert [model.label for model in models] == sorted({model.label for model in models})


def test_no_release_to_upgrade_from(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n", "pyproject.toml": ""})
    with pytest.raises(UsageError, match="No file in this repository says which release"):
        upgrade._in_use([tmp_path / "a.py"], ScanOptions())


@pytest.mark.parametrize("places", [0, 1, 6, 7, 8])
def test_the_places_of_a_stack(places: int) -> None:
    revision = Revision("0.18", ((0, 18, 0),))
    said = tuple(Said(f"{number}.txt", 1, revision, "a file") for number in range(places))
    told = ["".join(part for part, _ in line) for line in stacks._stack(Stack(revision, said))]
    assert sum(line.endswith("  a file") for line in told) == min(places, 6)
    more = [line for line in told if line.endswith("more places")]
    assert more == [f"  and {places - 6} more places"] * (places > 6)


@pytest.mark.parametrize(
    ("revision", "why", "told"),
    [
        (Revision("0.18.0", ((0, 18, 0),)), "", ["0.18.0  certain"]),
        (Revision("v0.18.0", ((0, 18, 0),)), "", ["v0.18.0  certain", "  judged as 0.18.0"]),
        (Revision("x", ((0, 17, 0), (0, 18, 0))), "", ["x  certain", "  judged as 0.17.0 and 0.18.0"]),
        (
            Revision("x", ((0, 17, 0), (0, 18, 0)), "a range", is_range=True),
            "",
            ["x  certain", "  a range; any of the releases 0.17.0 to 0.18.0"],
        ),
        (Revision("x", (), "a fork", certain=False), "", ["x  not known", "  a fork"]),
        (Revision("x", (), settle="ask"), "", ["x  not known", "  ", "  To know more, ask."]),
        (Revision("0.18.0", ((0, 18, 0),), settle="ask"), "", ["0.18.0  certain"]),
        (
            Revision("0.18.0", ((0, 18, 0),), certain=False, settle="ask"),
            "stated",
            ["0.18.0  likely", "  stated", "  To know more, ask."],
        ),
    ],
)
def test_the_lines_of_a_stack(revision: Revision, why: str, told: list[str]) -> None:
    shown = ["".join(part for part, _ in line) for line in stacks._stack(Stack(revision, (), why))]
    assert [line for line in shown if line.strip()] == [line for line in told if line.strip()]
    assert shown[-1] == ""


@pytest.mark.parametrize(
    ("folder", "version", "changed", "said", "state"),
    [
        (None, None, [], "not installed", "wrong"),
        ("/src", None, [], "0.19 from the checkout /src", "ok"),
        ("/src", "0.19.2", [], "0.19.2, as the wheel has it", "ok"),
        ("/src", "0.19.2", ["a.py was changed"], "0.19.2, but a.py was changed", "wrong"),
        ("/src", "0.19.2", ["a", "b", "c"], "0.19.2, but a and 2 more", "wrong"),
    ],
)
def test_the_doctor_on_megatron(
    folder: str | None, version: str | None, changed: list[str], said: str, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcore_unpatch.audit import wheel

    monkeypatch.setattr(wheel, "folder_in_use", lambda: folder)
    monkeypatch.setattr(wheel, "installed", lambda: version and SimpleNamespace(version=version))
    monkeypatch.setattr(wheel, "changed_files", lambda: (changed, []))
    monkeypatch.setattr(doctor, "installed_model", lambda: SimpleNamespace(label="0.19"))
    (line,) = doctor._megatron()
    assert (line.said, line.state, bool(line.remedy)) == (said, state, state == "wrong")


def origin(kind: str, **facts: Any) -> LivePatch:
    return LivePatch(Deviation(kind, "megatron.core.a", CodeOrigin("f"), of="b"), **facts)


@pytest.mark.parametrize(
    ("live", "more"),
    [
        ([], []),
        ([origin("method", ranks=("0", "1"), line="p.py:3")], ["      = made by p.py:3"]),
        (
            [origin("method", ranks=("1",), line="p.py:3", rule="MCU1")],
            ["      only on 1", "      = made by p.py:3 (MCU1)"],
        ),
        ([origin("stale", ranks=("0", "1"))], []),
        ([origin("file", ranks=("0",))], ["      only on 0"]),
    ],
)
def test_what_an_audit_prints(live: list[LivePatch], more: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    reports = [AuditReport("0.19.2", "0", notes=["n"]), AuditReport("0.18.0", "1", notes=["n", "m"])]
    never = [Finding("MCU1", "q.py", 7, 1, 7, "megatron.core.b", "module-attr", "")]
    audit._write_text(reports, live, never)
    told = capsys.readouterr()
    head = f"{lines.count(len(live), 'deviation')} from megatron-core 0.18.0, 0.19.2 in 2 processes."
    patches = [f"  {patch.deviation}" for patch in live]
    assert told.out.splitlines() == [head, *patches, *more, "  q.py:7  megatron.core.b was not patched in this run"]
    assert told.err.splitlines() == ["note: n", "note: m"]
    audit._write_text(reports[:1], [], [])
    assert capsys.readouterr().out == "0 deviations from megatron-core 0.19.2 in 1 process.\n"


@pytest.mark.parametrize(
    ("data", "asked", "readable"),
    [
        (b"x = 1\n", False, True),
        (b"x = '\xff'\n", False, False),
        ("x = 'é'\n".encode(), False, True),
        (b"# coding: latin-1\nx = '\xff'\n", False, True),
        (b"# coding: nonsense\nx = 1\n", False, False),
        (b"x = 1\0\n", False, False),
        (b"from megatron.core.models.gpt import GPTModel\nGPTModel.forward = ours\n", True, True),
        (b"import megatron.core\n", False, True),
    ],
)
def test_a_file_that_is_no_text_is_told_before_it_is_parsed(data: bytes, asked: bool, readable: bool) -> None:
    project: Any = SimpleNamespace(
        data=lambda _: data, reaches_megatron=lambda _: False, installers_for=lambda _: frozenset()
    )
    if readable:
        assert may_patch(project, "a.py", mocks=False) is asked
    else:
        with pytest.raises(Unreadable):
            may_patch(project, "a.py", mocks=False)


def test_what_git_would_wait_for(tmp_path: Path) -> None:
    write_files(
        tmp_path, {".git/HEAD": "", ".gitignore": "", "a/.gitattributes": "", "a/b.py": "", ".git/objects/x": ""}
    )
    links = [tmp_path / f"a/.git{number}" for number in range(4)]
    endless = [tmp_path / name for name in ("a/.gitignore", "a/.gitw", "a/.gitz", ".git/config")]
    for link in links:
        link.symlink_to("nowhere")
    assert list(git._endless_files(tmp_path)) == []
    for link, path in zip(links, endless, strict=True):  # whatever the order in which the folder lists them
        link.unlink()
        os.mkfifo(path)
        link.symlink_to("nowhere")
    for name in ("a/pipe", ".git/objects/pipe"):
        os.mkfifo(tmp_path / name)
    assert sorted(git._endless_files(tmp_path)) == sorted(endless)


def test_into_a_file_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for file, text in ((None, "told"), (tmp_path / "out", "\udce9")):
        with output.into(file):
            print(text)
    assert capsys.readouterr().out == "told\n"
    assert (tmp_path / "out").read_bytes() == b"\xe9\n"
    with pytest.raises(UsageError, match="cannot be written: Is a directory"), output.into(tmp_path):
        pass


@pytest.mark.parametrize(("columns", "width"), [("10", 40), ("40", 40), ("41", 41), ("100", 100), ("300", 100)])
def test_how_wide_lines_are(columns: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert lines.width() == width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", []),
        ("a", ["a"]),
        ("a b\nc", ["a b c"]),
        ("a\n\nb", ["a", "", "b"]),
        ("a\n- b\n- c\n  d", ["a", "- b", "- c d"]),
        ("a\n1. b", ["a", "1. b"]),
        ("a\n```\nx\n  y\n```\nb", ["a", "```", "x", "  y", "```", "b"]),
        ("| a |\n| b |\nc", ["| a |", "| b |", "c"]),
        ("# a\nb\n    c", ["# a", "b", "    c"]),
    ],
)
def test_a_page_on_a_terminal(text: str, shown: list[str]) -> None:
    told = ["".join(part for part, _ in line) for line in rules._body(text)]
    assert told == [*shown, ""]


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("first", ["", "here", "elsewhere", None])
def test_nothing_is_imported_from_the_current_folder(
    first: str | None, safe: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entries = [] if first is None else [str(tmp_path) if first == "here" else first, "rest"]
    monkeypatch.setattr(sys, "path", list(entries))
    monkeypatch.setattr(sys, "flags", SimpleNamespace(safe_path=safe))
    exec(MAIN, {"__name__": "started"})
    assert sys.path == (["rest"] if first in ("", "here") and not safe else entries)


def test_the_current_folder_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(SystemExit) as ended:
        exec(MAIN, {"__name__": "started"})
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: the current folder does not exist any more: go to another one\n"


@pytest.mark.parametrize("option", [None, "--quiet", "--statistics"])
@pytest.mark.parametrize("style", [*lines.OutputFormat])
def test_codemods_are_asked_where_a_report_says_what_they_do(
    style: str, option: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mcore_unpatch.commands import check, scan

    write_files(tmp_path, "from megatron.core import utils\nutils.get_model_config = print\n")
    asked: list[bool] = []
    for command in (scan, check):
        monkeypatch.setattr(command, "write", lambda report, *_, **__: asked.append(report.fixes_known))
        unpatch(command.__name__.rpartition(".")[2], "--output-format", style, *filter(None, [option]), cwd=tmp_path)
    bare = style in ("concise", "github") or (style == "text" and option is not None)
    assert asked == [not bare, style == "html"]
