"""What a change switches off of the gate itself is told, and counts: MCU805."""

from pathlib import Path

import pytest
from command import CLEAN, ERROR, FINDINGS, unpatch
from repository import Repository

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
PATCH = f"{IMPORT}GPTModel.forward = print\n"
QUIET = f"{IMPORT}GPTModel.forward = print  # unpatch: ignore[MCU601]\n"
TABLE = "[tool.unpatch]\n"
BASELINE = '{"version": 1, "counts": {"p.py": {"MCU601": 1}}}'


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A branch `main` with a configuration; the branch `work` is checked out."""
    made = Repository(tmp_path / "repository")
    made.commit({"plain.py": "x = 1\n", "pyproject.toml": f'{TABLE}exclude = ["docs"]\n', "docs/x.py": "x = 1\n"})
    made.git("checkout", "--quiet", "-b", "work")
    return made


def told(repository: Repository, *arguments: str) -> list[str]:
    """`path: message` of each MCU805; there is nothing else."""
    result = unpatch("check", "--base", "main", "--output-format", "json", *arguments, cwd=repository.path)
    found = result.json["findings"]
    assert result.code == (FINDINGS if found else CLEAN), result.err
    assert {one["rule"] for one in found} <= {"MCU805"}, found
    assert all((one["shape"], one["target"]) == ("switch", "") for one in found)
    return [f"{one['path']}:{one['line']}: {one['message']}" for one in found]


@pytest.mark.parametrize("now", ["[project]\nname = 'x'\n", None])
def test_a_table_that_goes(now: str | None, repository: Repository) -> None:
    repository.commit({"pyproject.toml": f'{TABLE}select = ["MCU", "MCU9"]\n'})
    repository.git("branch", "--quiet", "--force", "main")
    repository.write({"pyproject.toml": now}) if now else (repository.path / "pyproject.toml").unlink()
    repository.commit()
    (line,) = told(repository)
    assert line.startswith("pyproject.toml:1: this change also switches off")
    assert line.endswith("MCU901, MCU902, with `select`")


def test_only_in_the_files_asked_for(repository: Repository) -> None:
    repository.commit({"a/p.py": QUIET, "b/q.py": QUIET})
    assert [line.partition(":")[0] for line in told(repository, "b")] == ["q.py"]


def test_the_baseline_that_check_reads_by_itself(repository: Repository) -> None:
    name = "unpatch.baseline.json"
    repository.commit({"p.py": f"{IMPORT}GPTModel.forward = print\n", name: BASELINE})
    said = [f"{name}:1: this change also switches off 1 MCU601 in p.py, with a baseline entry"]
    assert told(repository) == said
    assert told(repository, "--config-from-base") == said


class TestPins:
    """`unpatch pin`, then `check --base`: the order that the Start page recommends."""

    @pytest.fixture
    def pinned(self, repository: Repository) -> Repository:
        repository.git("checkout", "--quiet", "main")
        repository.commit({"p.py": PATCH, "requirements.txt": "megatron-core==0.18.0\n"})
        repository.git("checkout", "--quiet", "-B", "work")
        assert unpatch("pin", cwd=repository.path).code == CLEAN
        repository.commit()
        return repository

    def test_of_what_the_base_has_switch_nothing_off(self, pinned: Repository) -> None:
        assert told(pinned) == []

    @pytest.mark.parametrize(
        ("old", "new", "what"),
        [
            ('until = "0.19"\n', 'until = "0.99"\n', "the end of the pin of `GPTModel.forward`, `until` 0.19"),
            ('until = "0.19"\n', "", "the end of the pin of `GPTModel.forward`, `until` 0.19"),
            ('where = ["p.py"]\n', "", "the pin of `GPTModel.forward`, whose patch stays"),
        ],
    )
    def test_that_are_loosened(self, old: str, new: str, what: str, pinned: Repository) -> None:
        lock = pinned.path / "unpatch.lock"
        lock.write_text(f'{lock.read_text()}until = "0.19"\n')
        pinned.commit()
        pinned.git("branch", "--force", "main", "work")
        lock.write_text(lock.read_text().replace(old, new))
        assert [line.partition("switches off ")[2] for line in told(pinned)] == [what] * bool(what)
        pinned.write({"p.py": "x = 1\n"})
        gone = unpatch("check", "--base", "main", "-q", cwd=pinned.path).out
        assert "MCU805" not in gone  # the patch is gone: there is nothing to loosen

    def test_of_a_patch_that_is_to_come(self, repository: Repository) -> None:
        repository.commit({"p.py": PATCH, "requirements.txt": "megatron-core==0.18.0\n"})
        assert unpatch("pin", cwd=repository.path).code == CLEAN
        (repository.path / "p.py").unlink()
        repository.commit()
        result = unpatch("check", "--base", "main", "--output-format", "json", cwd=repository.path)
        assert sorted(result.rules) == ["MCU804", "MCU805"]


def test_a_base_of_the_configuration_that_moves(repository: Repository) -> None:
    """`base = "HEAD"` would compare a change with itself."""
    repository.git("checkout", "--quiet", "main")
    repository.commit({"pyproject.toml": f'{TABLE}base = "main"\n'})
    repository.git("checkout", "--quiet", "-B", "work")
    assert unpatch("check", cwd=repository.path).code == CLEAN
    repository.commit({"p.py": PATCH, "pyproject.toml": f'{TABLE}base = "HEAD"\n'})
    for _ in range(2):
        result = unpatch("check", cwd=repository.path)
        assert result.code == FINDINGS
        assert "this change also switches off the comparison with 'main'" in " ".join(result.out.split())
        repository.commit({"pyproject.toml": f'{TABLE}base = "HEAD"\njobs = 1\n'})  # another commit hides nothing
    repository.git("branch", "--quiet", "--force", "main")
    assert unpatch("check", cwd=repository.path).code == CLEAN  # the old base has it


def test_a_megatron_carried_along(repository: Repository) -> None:
    repository.commit({"x/megatron/core/package_info.py": "", "x/megatron/core/p.py": PATCH})
    (line,) = told(repository)
    assert line.startswith("x/megatron/core/package_info.py:1: this change also switches off what is below x/megatron,")


class TestToldOtherwise:
    def test_on_the_command_line(self, repository: Repository) -> None:
        repository.commit({"p.py": QUIET})
        assert told(repository, "--ignore", "MCU805") == []
        assert told(repository, "--select", "MCU1") != []


class TestConfigurationOfTheBase:
    def test_a_file_nearer_by(self, repository: Repository) -> None:
        repository.commit({"sub/p.py": PATCH, "sub/pyproject.toml": f'{TABLE}exclude = ["p.py"]\n'})
        result = unpatch("check", "--base", "main", "--config-from-base", "sub", cwd=repository.path)
        assert result.code == FINDINGS
        assert any("exclude" in line for line in told(repository, "sub"))

    def test_needs_a_base(self, repository: Repository) -> None:
        repository.commit({"pyproject.toml": f'{TABLE}base = "HEAD"\n'})
        result = unpatch("check", "--config-from-base", cwd=repository.path)
        assert result.code == ERROR
        assert "--base" in result.err
