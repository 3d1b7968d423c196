"""Rules by code or family, and `[tool.unpatch]` of the nearest pyproject.toml for all of it."""

from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch

FILES = {
    "a.py": """
        from megatron.core.models.gpt import GPTModel
        from megatron.core import utils
        def new(self, input_ids):
            return log_probs(input_ids)
        GPTModel.forward = new
        utils.get_model_config = print
        GPTModel.state_dict = print
    """,
    "test_a.py": "from unittest import mock\nmock.patch('megatron.core.utils.get_model_config')\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with one finding each of MCU101, MCU601, MCU602 and MCU901."""
    write_files(tmp_path, FILES)
    return tmp_path


def rules(project: Path, *arguments: str, cwd: Path | None = None) -> list[str]:
    """The rules reported, sorted."""
    return sorted(unpatch("scan", "--output-format", "json", *arguments, cwd=cwd or project).rules)


class TestSelection:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ([], ["MCU101", "MCU601", "MCU602"]),
            (["--select", "MCU101"], ["MCU101"]),
            (["--select", "mcu101"], ["MCU101"]),
            (["--select", "MCU6"], ["MCU601", "MCU602"]),
            (["--select", "MCU101,MCU602"], ["MCU101", "MCU602"]),
            (["--select", "MCU101", "--select", "MCU602"], ["MCU101", "MCU602"]),
            (["--select", "MCU9"], ["MCU901"]),
            (["--select", "MCU"], ["MCU101", "MCU601", "MCU602", "MCU901"]),
            (["--select", "ALL"], ["MCU101", "MCU601", "MCU602", "MCU901"]),
            (["--ignore", "MCU6"], ["MCU101"]),
            (["--ignore", "MCU601,MCU1"], ["MCU602"]),
            (["--ignore", "MCU"], []),
            (["--select", "MCU6", "--ignore", "MCU602"], ["MCU601"]),
            (["--select", "MCU602", "--ignore", "MCU6"], ["MCU602"]),
            (["--select", "MCU2"], []),
        ],
    )
    def test_prefixes(self, arguments: list[str], expected: list[str], project: Path) -> None:
        assert rules(project, *arguments) == expected

    def test_a_file_that_only_mocks_is_read_where_mocks_are_selected(self, tmp_path: Path) -> None:
        source = (
            "from unittest import mock\nfrom megatron.core import utils\nmock.patch.object(utils, 'get_model_config')\n"
        )
        write_files(tmp_path, {"test_a.py": source})
        assert (rules(tmp_path), rules(tmp_path, "--select", "MCU9")) == ([], ["MCU901"])

    def test_check_counts_only_what_is_selected(self, project: Path) -> None:
        assert unpatch("check", "--select", "MCU2", cwd=project).code == CLEAN
        assert unpatch("check", "--select", "MCU1", cwd=project).code == FINDINGS


class TestConfiguration:
    def configure(self, folder: Path, text: str) -> None:
        write_files(folder, {"pyproject.toml": f"[tool.unpatch]\n{text}\n"})

    def test_select(self, project: Path) -> None:
        self.configure(project, 'select = ["MCU1"]')
        assert rules(project) == ["MCU101"]

    def test_ignore(self, project: Path) -> None:
        self.configure(project, 'ignore = ["MCU6"]')
        assert rules(project) == ["MCU101"]

    def test_the_command_line_wins(self, project: Path) -> None:
        self.configure(project, 'select = ["MCU1"]\noutput-format = "sarif"')
        assert rules(project, "--select", "MCU602") == ["MCU602"]

    def test_exclude(self, project: Path) -> None:
        write_files(project, {"third_party/a.py": FILES["a.py"], "gen/b.py": FILES["a.py"]})
        self.configure(project, 'exclude = ["third_party", "gen/*.py"]')
        assert rules(project) == ["MCU101", "MCU601", "MCU602"]

    def test_exclude_on_the_command_line_adds_to_it(self, project: Path) -> None:
        write_files(project, {"third_party/a.py": FILES["a.py"]})
        self.configure(project, 'exclude = ["third_party"]')
        assert rules(project, "--exclude", "a.py") == []

    def test_target(self, project: Path) -> None:
        write_files(
            project,
            {
                "a.py": "from megatron.core.models.gpt import GPTModel\n"
                "def new(self): ...\n"
                "GPTModel._postprocess = new\n"
            },
        )
        self.configure(project, 'target-mcore = "0.16"')
        assert "TypeError on megatron-core 0.18+" not in unpatch("scan", cwd=project).out
        assert "TypeError on" in unpatch("scan", "--target-mcore", "0.19", cwd=project).out

    def test_output_format(self, project: Path) -> None:
        self.configure(project, 'output-format = "json"')
        assert unpatch("check", cwd=project).json["version"] == 1

    def test_jobs(self, project: Path) -> None:
        self.configure(project, "jobs = 1")
        assert rules(project) == ["MCU101", "MCU601", "MCU602"]

    def test_baseline(self, project: Path) -> None:
        self.configure(project, 'baseline = "known.json"')
        assert unpatch("check", cwd=project).code == ERROR
        assert unpatch("check", "--write-baseline", cwd=project).code == CLEAN
        assert (project / "known.json").exists()
        assert unpatch("check", cwd=project).code == CLEAN

    def test_baseline_is_relative_to_the_file(self, project: Path) -> None:
        self.configure(project, 'baseline = "known.json"')
        unpatch("check", "--write-baseline", cwd=project)
        write_files(project, {"deep/er/b.py": "x = 1\n"})
        assert unpatch("check", project, cwd=project / "deep/er").code == CLEAN

    def test_base(self, project: Path) -> None:
        from repository import Repository

        repository = Repository(project)
        repository.commit()
        self.configure(project, 'base = "main"')
        assert unpatch("check", cwd=project).code == CLEAN

    def test_found_upwards_from_the_scanned_path(self, project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.configure(project, 'select = ["MCU1"]')
        write_files(project, {"deep/er/a.py": FILES["a.py"]})
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        assert rules(project, str(project / "deep/er"), cwd=elsewhere) == ["MCU101"]
        assert rules(project, str(project / "deep/er/a.py"), cwd=elsewhere) == ["MCU101"]

    def test_a_file_without_the_table_is_passed_over(self, project: Path) -> None:
        self.configure(project, 'select = ["MCU1"]')
        write_files(project, {"pkg/pyproject.toml": "[project]\nname = 'x'\n", "pkg/a.py": FILES["a.py"]})
        assert rules(project, "pkg") == ["MCU101"]

    def test_the_nearest_table_wins(self, project: Path) -> None:
        self.configure(project, 'select = ["MCU1"]')
        self.configure(project / "pkg", 'select = ["MCU602"]')
        write_files(project, {"pkg/a.py": FILES["a.py"]})
        assert rules(project, "pkg") == ["MCU602"]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("selct = []", "unknown key 'selct'"),
            ('select = "MCU1"', "select in [tool.unpatch] must be a list of strings"),
            ("select = [1]", "select in [tool.unpatch] must be a list of strings"),
            ("exclude = 3", "exclude in [tool.unpatch] must be a list of strings"),
            ("target-mcore = 0.19", "target-mcore in [tool.unpatch] must be a string"),
            ("jobs = 0", "jobs in [tool.unpatch] must be a positive number"),
            ("jobs = true", "jobs in [tool.unpatch] must be a positive number"),
            ('select = ["XYZ"]', "unknown rule or family 'XYZ'"),
            ('output-format = "xml"', "unknown output-format 'xml'"),
            ('target-mcore = "new"', "'new' is no Megatron"),
            ("= broken", "is not valid TOML"),
        ],
    )
    @pytest.mark.parametrize("command", ["scan", "check"])
    def test_mistakes(self, command: str, text: str, says: str, project: Path) -> None:
        self.configure(project, text)
        result = unpatch(command, cwd=project)
        assert (result.code, result.out) == (ERROR, "")
        assert says in result.err

    def test_no_table_at_all(self, project: Path) -> None:
        write_files(project, {"pyproject.toml": "[tool]\nunpatch = 3\n"})
        assert "must be a table" in unpatch("scan", cwd=project).err

    def test_bytes_that_are_no_text(self, project: Path) -> None:
        write_files(project, {"pyproject.toml": b"\xff\xfe\x00"})
        result = unpatch("scan", cwd=project)
        assert result.code == ERROR
        assert "pyproject.toml" in result.err


@pytest.mark.parametrize(
    ("name", "is_told"),
    [
        ("mcore-unpatch", True),
        ("mcore_unpatch", True),
        ("un-patch", True),
        ("unpatched", True),
        ("Unpatch", True),
        ("patchy", False),
    ],
)
def test_a_table_that_looks_like_ours_is_told_and_not_read(tmp_path: Path, name: str, is_told: bool) -> None:
    write_files(tmp_path, {"pyproject.toml": f"[tool.{name}]\nselect = ['MCU999']\n", "a.py": "x = 1\n"})
    result = unpatch("check", cwd=tmp_path)
    said = f"note: [tool.{name}] is not read; the name of this tool's table is [tool.unpatch].\n"
    assert (result.code, result.err) == (CLEAN, said if is_told else "")
