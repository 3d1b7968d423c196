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


def test_an_ignore_comment(repository: Repository) -> None:
    repository.commit({"p.py": QUIET})
    assert told(repository) == ["p.py:2: this change also switches off MCU601 for `GPTModel.forward`, with a comment"]
    repository.git("branch", "--quiet", "--force", "main")
    repository.commit({"p.py": "x = 1\n" + QUIET, "plain.py": "x = 2\n"})
    assert told(repository) == []  # moved lines
    repository.git("mv", "p.py", "q.py")
    repository.commit()
    assert told(repository) == []


def test_another_patch_below_the_same_comment(repository: Repository) -> None:
    repository.commit({"p.py": f"{IMPORT}# unpatch: ignore\nGPTModel.forward = print\n"})
    repository.git("branch", "--quiet", "--force", "main")
    repository.commit({"p.py": f"{IMPORT}# unpatch: ignore\nGPTModel._postprocess = print\n"})
    assert told(repository) == [
        "p.py:2: this change also switches off MCU102 for `GPTModel._postprocess`, with a comment"
    ]


def test_another_row_below_the_same_comment(repository: Repository) -> None:
    """The line with the comment is the same, and what it sets is not."""
    loop = f"{IMPORT}for name in ['forward']:\n    setattr(GPTModel, name, print)  # unpatch: ignore\n"
    repository.commit({"p.py": loop})
    repository.git("branch", "--quiet", "--force", "main")
    repository.commit({"p.py": loop.replace("forward", "state_dict")})
    said = ["p.py:3: this change also switches off MCU601 for `GPTModel.state_dict`, with a comment"]
    assert told(repository) == said
    repository.commit({"p.py": loop.replace("forward", "forward', 'state_dict")})
    assert told(repository) == said  # and not the one that was there


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


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ('exclude = ["docs", "p.py"]', "with `exclude`: 'p.py'"),
        ('exclude = ["docs"]\nignore = ["MCU601"]', "with `ignore`: 'MCU601'"),
        ('exclude = ["docs"]\nignore = ["MCU6"]', "with `ignore`: 'MCU6'"),
        ('exclude = ["docs"]\nselect = ["MCU1", "MCU8"]', "with `select`"),
        ('exclude = ["docs"]\nbaseline = "b.json"', "with `baseline`: 'b.json'"),
    ],
)
def test_a_setting(setting: str, message: str, repository: Repository) -> None:
    repository.commit({"p.py": PATCH, "pyproject.toml": f"{TABLE}{setting}\n"})
    (repository.path / "b.json").write_text(BASELINE)
    lines = told(repository)
    assert message in lines[0] + lines[-1]
    assert lines[0].startswith(("pyproject.toml:", "b.json:"))
    assert "also switches off" in lines[0]


def test_a_baseline_entry(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.commit({"b.json": '{"version": 1, "counts": {"q.py": {"MCU601": 1}}}', "q.py": PATCH})
    repository.git("checkout", "--quiet", "-B", "work")
    assert told(repository, "--baseline", "b.json") == []
    repository.git("mv", "q.py", "r.py")
    repository.commit({"b.json": BASELINE.replace("p.py", "r.py")})
    assert told(repository, "--baseline", "b.json") == []  # renamed with its file
    counts = '{"version": 1, "counts": {\n"p.py": {"MCU601": 1},\n"r.py": {"MCU601": 1}}}'
    repository.commit({"p.py": f"{IMPORT}GPTModel.state_dict = print\n", "b.json": counts})
    assert told(repository, "--baseline", "b.json") == [
        "b.json:2: this change also switches off 1 MCU601 in p.py, with a baseline entry"
    ]


def test_the_baseline_that_check_reads_by_itself(repository: Repository) -> None:
    name = "unpatch.baseline.json"
    repository.commit({"p.py": f"{IMPORT}GPTModel.forward = print\n", name: BASELINE})
    said = [f"{name}:1: this change also switches off 1 MCU601 in p.py, with a baseline entry"]
    assert told(repository) == said
    assert told(repository, "--config-from-base") == said


def test_a_first_baseline_of_what_the_base_has(repository: Repository) -> None:
    repository.git("checkout", "--quiet", "main")
    repository.commit({"p.py": PATCH})
    repository.git("checkout", "--quiet", "-B", "work")
    repository.commit({"b.json": BASELINE})
    assert told(repository, "--baseline", "b.json") == []
    repository.commit({"b.json": BASELINE.replace(": 1}", ": 3}")})  # room for what is to come
    assert told(repository, "--baseline", "b.json") == [
        "b.json:1: this change also switches off 2 MCU601 in p.py, with a baseline entry"
    ]


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

    def test_of_a_patch_that_comes_with_them(self, pinned: Repository) -> None:
        pinned.write({"q.py": f"{IMPORT}GPTModel.forward = len\n"})
        assert unpatch("pin", cwd=pinned.path).code == CLEAN
        pinned.commit()
        (line,) = told(pinned)
        assert "switches off the gate for `GPTModel.forward`, with a pin" in line

    def test_of_the_base_speak_for_no_new_patch(self, pinned: Repository) -> None:
        pinned.git("branch", "--force", "main", "work")
        pinned.commit({"q.py": f"{IMPORT}GPTModel.forward = len\n"})
        result = unpatch("check", "--base", "main", "--output-format", "json", cwd=pinned.path)
        assert [(finding["path"], finding["rule"]) for finding in result.json["findings"]] == [("q.py", "MCU601")]
        assert unpatch("pin", cwd=pinned.path).code == CLEAN  # one more place of a name that the base pins
        (line,) = told(pinned)
        assert "switches off the gate for `GPTModel.forward`, with a pin" in line
        pinned.git("checkout", "--quiet", "unpatch.lock")
        pinned.git("mv", "p.py", "r.py")
        pinned.git("rm", "--quiet", "q.py")
        pinned.commit()
        assert unpatch("check", "--base", "main", cwd=pinned.path).code == CLEAN

    @pytest.mark.parametrize(
        ("old", "new", "what"),
        [
            ('until = "0.19"\n', 'until = "0.99"\n', "the end of the pin of `GPTModel.forward`, `until` 0.19"),
            ('until = "0.19"\n', "", "the end of the pin of `GPTModel.forward`, `until` 0.19"),
            ('review_by = "2030-01-01"\n', "", "the review of the pin of `GPTModel.forward`, by 2030-01-01"),
            ('review_by = "2030-01-01"\n', 'review_by = "2031-01-01"\n', ""),  # a review, and the next one
            ("patched = true\n", "", "the pin of `GPTModel.forward`, whose patch stays"),
        ],
    )
    def test_that_are_loosened(self, old: str, new: str, what: str, pinned: Repository) -> None:
        lock = pinned.path / "unpatch.lock"
        limits = 'until = "0.19"\nreview_by = "2030-01-01"\npatched = true\n'
        lock.write_text(lock.read_text().replace("patched = true\n", limits))
        pinned.commit()
        pinned.git("branch", "--force", "main", "work")
        lock.write_text(lock.read_text().replace(old, new))
        assert [line.partition("switches off ")[2] for line in told(pinned)] == [what] * bool(what)
        pinned.write({"p.py": "x = 1\n"})
        assert told(pinned) == []  # the patch is gone: there is nothing to loosen

    def test_that_go_while_the_patch_stays(self, pinned: Repository) -> None:
        pinned.git("branch", "--force", "main", "work")
        lock = pinned.path / "unpatch.lock"
        lock.unlink()
        assert [line.partition("switches off ")[2] for line in told(pinned)] == [
            "the pin of `GPTModel.forward`, whose patch stays"
        ]
        pinned.write({"p.py": "x = 1\n"})
        assert told(pinned) == []  # both are gone
        lock.mkdir()
        result = unpatch("check", "--base", "main", cwd=pinned.path)
        assert (result.code, "unpatch.lock is not a regular file" in result.err) == (ERROR, True)

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

    def test_not_by_the_change_itself(self, repository: Repository) -> None:
        repository.commit({"p.py": QUIET, "pyproject.toml": f'{TABLE}exclude = ["docs"]\nignore = ["MCU805"]\n'})
        assert len(told(repository)) == 2
        repository.git("branch", "--quiet", "--force", "main")
        repository.commit({"q.py": QUIET})
        assert told(repository) == []

    def test_nor_by_a_comment(self, repository: Repository) -> None:
        repository.commit({"p.py": f"{IMPORT}GPTModel.forward = print  # unpatch: ignore[MCU601, MCU805]\n"})
        result = unpatch("check", "--base", "main", "--output-format", "json", cwd=repository.path)
        assert "MCU805" in result.rules

    def test_without_a_base_nothing_is(self, repository: Repository) -> None:
        repository.commit({"p.py": QUIET})
        assert unpatch("check", cwd=repository.path).code == CLEAN


class TestConfigurationOfTheBase:
    def test_behind_a_link(self, repository: Repository) -> None:
        (repository.path / "pyproject.toml").rename(repository.path / "o.toml")
        (repository.path / "pyproject.toml").symlink_to("o.toml")
        repository.commit()
        repository.git("branch", "--quiet", "--force", "main")
        repository.commit({"plain.py": "x = 2\n"})
        assert told(repository) == []
        repository.write({"o.toml": f'{TABLE}exclude = ["docs", "more"]\n'})
        assert len(told(repository)) == 1

    def test_what_the_change_sets_has_no_effect(self, repository: Repository) -> None:
        repository.commit({"p.py": PATCH, "pyproject.toml": f'{TABLE}exclude = ["p.py"]\n'})
        arguments = ("check", "--base", "main", "--config-from-base", "--output-format", "json")
        result = unpatch(*arguments, cwd=repository.path)
        assert (result.code, result.rules) == (FINDINGS, ["MCU601"])
        repository.write({"pyproject.toml": b"not = [toml\n"})
        assert unpatch(*arguments, cwd=repository.path).rules == ["MCU601"]
        repository.commit({"docs/p.py": f"{IMPORT}GPTModel.state_dict = print\n"})
        assert unpatch(*arguments, cwd=repository.path).rules == ["MCU601"]  # the base excludes it

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
