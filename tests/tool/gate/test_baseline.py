"""`--write-baseline` keeps the known findings as counts per file and rule; `--baseline` lets only those through."""

import json
import tempfile
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch
from repository import Repository

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
OLD = f"{IMPORT}GPTModel.forward = print\n"
FILE = "unpatch.baseline.json"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one known patch."""
    write_files(tmp_path, {"pkg/patches.py": OLD})
    result = unpatch("check", "--write-baseline", cwd=tmp_path)
    assert result.code == CLEAN
    assert "1 finding" in result.err
    return tmp_path


def test_counts_per_file_and_rule(project: Path) -> None:
    assert json.loads((project / FILE).read_text()) == {"version": 1, "counts": {"pkg/patches.py": {"MCU601": 1}}}


def test_it_is_made_in_its_own_folder(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(project / "a full or another disk"))
    assert unpatch("check", "--write-baseline", cwd=project).code == CLEAN


def test_without_one_the_first_check_is_a_screen(project: Path) -> None:
    """The count, the three worst and the way to accept them; with a baseline everything new is shown in full."""
    names = ("forward", "set_input_tensor", "_preprocess", "_postprocess", "build_schedule_plan")
    write_files(project, {f"pkg/{name}.py": f"{IMPORT}GPTModel.{name} = print\n" for name in names})
    with_one = unpatch("check", cwd=project)
    assert (with_one.code, with_one.out.count(".py\n  2:1  MCU")) == (FINDINGS, 5)
    (project / FILE).unlink()
    result = unpatch("check", cwd=project)
    assert result.code == FINDINGS
    assert result.out.startswith("6 patches, in 6 files read.\n\nMost urgent\n")
    assert result.out.count(".py:2") == 3
    said = " ".join(result.out.split())
    assert said.endswith("`unpatch check --write-baseline` for what cannot be pinned All: unpatch scan --verbose")
    assert len(result.out.splitlines()) < 25
    assert len(unpatch("check", "-q", cwd=project).out.splitlines()) == 6
    assert "pkg/forward.py\n  2:1  MCU" in unpatch("check", "pkg/forward.py", cwd=project).out


def test_what_is_pinned_is_not_counted(project: Path) -> None:
    write_files(project, {"requirements.txt": "megatron-core==0.19.2\n"})
    assert unpatch("pin", cwd=project).code == CLEAN
    write_files(project, {"pkg/other.py": OLD.replace("forward", "set_input_tensor")})
    assert unpatch("check", "--write-baseline", cwd=project).code == CLEAN
    assert list(json.loads((project / FILE).read_text())["counts"]) == ["pkg/other.py"]
    result = unpatch("check", "--baseline", FILE, cwd=project)
    assert (result.code, result.err) == (CLEAN, "")


def test_known_findings_pass(project: Path) -> None:
    result = unpatch("check", "--baseline", FILE, cwd=project)
    assert (result.code, result.err) == (CLEAN, "")


def test_moved_lines_do_not_matter(project: Path) -> None:
    write_files(project, {"pkg/patches.py": "# moved\n" * 30 + OLD})
    assert unpatch("check", "--baseline", FILE, cwd=project).code == CLEAN


def test_one_more_fails(project: Path) -> None:
    write_files(project, {"pkg/patches.py": OLD + "GPTModel.state_dict = print\n"})
    result = unpatch("check", "--baseline", FILE, "--output-format", "json", cwd=project)
    assert result.code == FINDINGS
    assert [f["target"].rpartition(".")[2] for f in result.json["findings"]] == ["state_dict"]


def test_one_more_fails_against_a_base_too(tmp_path: Path) -> None:
    """The baseline was written for what the base has, and speaks for no new patch in the same file."""
    repository = Repository(tmp_path)
    repository.write({"pkg/patches.py": OLD})
    assert unpatch("check", "--write-baseline", cwd=tmp_path).code == CLEAN
    repository.commit()
    repository.git("checkout", "--quiet", "-b", "work")
    repository.commit({"pkg/patches.py": OLD + "GPTModel.state_dict = print\n"})
    result = unpatch("check", "--base", "main", "--output-format", "json", cwd=tmp_path)
    assert [f["target"].rpartition(".")[2] for f in result.json["findings"]] == ["state_dict"]


def test_a_patch_file_counts_by_what_it_changes_and_not_by_how(tmp_path: Path) -> None:
    """Made for another release, with other statements and another number of hunks."""
    head = "--- a/megatron/core/transformer/mlp.py\n+++ b/megatron/core/transformer/mlp.py\n"
    hunk = "@@ -{0},3 +{0},4 @@ class MLP(A):\n     def forward(self, x):\n         y = x\n+{1}\n         z = y\n"
    write_files(tmp_path, {"a.patch": head + hunk.format(9, "        y = y.float()")})
    assert unpatch("check", "--write-baseline", cwd=tmp_path).code == CLEAN
    again = hunk.format(9, "        y = 1") + hunk.format(80, "        y = 2")
    for text in (hunk.format(40, "        # y"), hunk.format(9, "        y = ["), again):
        write_files(tmp_path, {"a.patch": head + text})
        result = unpatch("check", "--baseline", FILE, cwd=tmp_path)
        assert (result.code, result.err) == (CLEAN, "")


def test_another_file_fails(project: Path) -> None:
    write_files(project, {"pkg/more.py": OLD})
    result = unpatch("check", "--baseline", FILE, "--output-format", "json", cwd=project)
    assert [f["path"] for f in result.json["findings"]] == ["pkg/more.py"]


def test_too_generous_is_reported(project: Path) -> None:
    write_files(project, {"pkg/patches.py": "x = 1\n"})
    result = unpatch("check", "--baseline", FILE, cwd=project)
    assert result.code == CLEAN
    assert "The baseline allows 1 more MCU601 in pkg/patches.py than exist" in result.err
    assert "MCU601 in pkg/patches.py" in result.err
    assert "--write-baseline" in result.err


def test_a_file_that_is_gone_is_reported(project: Path) -> None:
    (project / "pkg/patches.py").unlink()
    assert (
        "The baseline allows 1 more MCU601 in pkg/patches.py than exist"
        in unpatch("check", "--baseline", FILE, cwd=project).err
    )


def test_a_file_that_was_not_scanned_is_not(project: Path) -> None:
    write_files(project, {"other/x.py": "x = 1\n"})
    assert unpatch("check", "--baseline", FILE, "other", cwd=project).err == ""


def test_from_another_folder(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert unpatch("check", "--baseline", project / FILE, project, cwd=elsewhere).code == CLEAN
    assert unpatch("check", "--baseline", f"../{FILE}", cwd=project / "pkg").code == CLEAN
    assert unpatch("check", "--baseline", project / FILE, project / "pkg/patches.py", cwd=elsewhere).code == CLEAN


def test_written_to_another_place(project: Path) -> None:
    (project / "ci").mkdir()
    assert unpatch("check", "--write-baseline", "--baseline", "ci/known.json", cwd=project).code == CLEAN
    assert json.loads((project / "ci/known.json").read_text())["counts"] == {"../pkg/patches.py": {"MCU601": 1}}
    assert unpatch("check", "--baseline", "ci/known.json", cwd=project).code == CLEAN


def test_written_again_after_a_change(project: Path) -> None:
    write_files(project, {"pkg/patches.py": OLD + "GPTModel.state_dict = print\n"})
    assert unpatch("check", "--write-baseline", "--baseline", FILE, cwd=project).code == CLEAN
    assert unpatch("check", "--baseline", FILE, cwd=project).code == CLEAN


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"version": 2, "counts": {}}',
        '{"version": 1, "counts": []}',
        '{"version": 1, "counts": {"a.py": 3}}',
        '{"version": 1, "counts": {"a.py": {"MCU601": "1"}}}',
        '{"version": 1, "counts": {"a.py": {"MCU601": -1}}}',
        '{"version": 1, "counts": {"a.py": {"MCU601": true}}}',
        '{"version": 1, "counts": {"a.py": {"MCU601": ' + "9" * 5000 + "}}}",
    ],
)
def test_a_broken_file(text: str, project: Path) -> None:
    (project / FILE).write_text(text)
    result = unpatch("check", "--baseline", FILE, cwd=project)
    assert (result.code, result.out) == (ERROR, "")
    assert FILE in result.err


def test_bytes_that_are_no_text(project: Path) -> None:
    (project / FILE).write_bytes(b"\xff\xfe\x00")
    assert unpatch("check", "--baseline", FILE, cwd=project).code == ERROR


def test_a_folder_instead_of_a_file(project: Path) -> None:
    result = unpatch("check", "--baseline", "pkg", cwd=project)
    assert result.code == ERROR
    assert "cannot be read" in result.err


def test_none_is_written_while_a_file_cannot_be_analysed(project: Path) -> None:
    before = (project / FILE).read_text()
    write_files(project, {"broken.py": b"import megatron.core as m\nm.x = (\n"})
    result = unpatch("check", "--write-baseline", cwd=project)
    assert result.code == ERROR
    assert "broken.py" in result.err
    assert (project / FILE).read_text() == before


def test_no_place_to_write_to(project: Path) -> None:
    result = unpatch("check", "--write-baseline", "--baseline", "no/folder/here.json", cwd=project)
    assert result.code == ERROR
    assert "cannot be written" in result.err


def test_json_and_sarif_show_only_what_is_beyond_it(project: Path) -> None:
    assert unpatch("check", "--baseline", FILE, "--output-format", "json", cwd=project).json["findings"] == []
    assert (
        unpatch("check", "--baseline", FILE, "--output-format", "sarif", cwd=project).json["runs"][0]["results"] == []
    )


def test_scan_shows_everything_all_the_same(project: Path) -> None:
    write_files(project, {"pyproject.toml": f'[tool.unpatch]\nbaseline = "{FILE}"\n'})
    assert unpatch("check", cwd=project).code == CLEAN
    assert "1 patch:" in unpatch("scan", cwd=project).out
