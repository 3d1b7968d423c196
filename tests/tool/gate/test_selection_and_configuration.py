"""Rules by code or family, and `[tool.unpatch]` of the nearest pyproject.toml for all of it."""

from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, unpatch

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


class TestConfiguration:
    def configure(self, folder: Path, text: str) -> None:
        write_files(folder, {"pyproject.toml": f"[tool.unpatch]\n{text}\n"})

    def test_select(self, project: Path) -> None:
        self.configure(project, 'select = ["MCU1"]')
        assert rules(project) == ["MCU101"]

    def test_output_format(self, project: Path) -> None:
        self.configure(project, 'output-format = "json"')
        assert unpatch("check", cwd=project).json["version"] == 1

    def test_jobs(self, project: Path) -> None:
        self.configure(project, "jobs = 1")
        assert rules(project) == ["MCU101", "MCU601", "MCU602"]

    def test_found_upwards_from_the_scanned_path(self, project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        self.configure(project, 'select = ["MCU1"]')
        write_files(project, {"deep/er/a.py": FILES["a.py"]})
        elsewhere = tmp_path_factory.mktemp("elsewhere")
        assert rules(project, str(project / "deep/er"), cwd=elsewhere) == ["MCU101"]
        assert rules(project, str(project / "deep/er/a.py"), cwd=elsewhere) == ["MCU101"]

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
