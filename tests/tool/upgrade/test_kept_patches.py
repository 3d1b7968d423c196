"""What people write into `unpatch.lock`, its dates and probes, and `pins.guard` around their own install functions."""

import subprocess
import sys
from datetime import date, timedelta
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch
from downloads import unpacked

from mcore_unpatch import pins
from mcore_unpatch.errors import UsageError

PREPROCESS = "megatron.core.models.gpt.gpt_model.GPTModel._preprocess"
PATCH = """
    from megatron.core.models.gpt.gpt_model import GPTModel

    def preprocess(self, *args, **kwargs):
        return 1

    GPTModel._preprocess = preprocess
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_files(tmp_path, {"patches.py": PATCH, "requirements.txt": "megatron-core==0.18.2\n", "pyproject.toml": ""})
    assert unpatch("pin", "--why", "our embedding", cwd=tmp_path).code == CLEAN
    return tmp_path


def test_a_pinned_patch_is_not_denied(repository: Path) -> None:
    assert unpatch("check", cwd=repository).out == "No unpinned patch of Megatron Core found; 1 file scanned.\n"


def test_what_is_not_pinned_is_counted(repository: Path) -> None:
    write_files(repository, {"more.py": "import megatron.core\nmegatron.core.mpu = megatron.core.parallel_state\n"})
    assert "Not pinned: 1 patch. A baseline accepts it until it is gone." in unpatch("pin", cwd=repository).out


def edit(repository: Path, *lines: str) -> None:
    """As a person would: lines added to the only pin."""
    file = repository / pins.LOCK
    file.write_text(file.read_text() + "\n".join(lines) + "\n")


def in_days(days: int) -> str:
    return f'review_by = "{date.today() + timedelta(days=days)}"'


def test_what_people_wrote_survives_every_rewrite(repository: Path) -> None:
    written = [
        'until = "patches.probes:mended"',
        'review_by = "2999-01-31"',
        'depends_on = ["megatron.core.utils.get_model_config"]',
        'on_change = "skip"',
    ]
    edit(repository, "# Ada knows about this one.", *written)
    for target in ("0.18", "0.19", "0.18"):
        result = unpatch("pin", "--target-mcore", target, cwd=repository)
        assert result.code == CLEAN, result.err
        text = (repository / pins.LOCK).read_text()
        assert text.count("# Ada knows about this one.") == 1
        assert all(line in text for line in [*written, 'why = "our embedding"'])
        assert 'name = "megatron.core.utils.get_model_config"' in text  # what it depends on is pinned with it
    assert unpatch("check", cwd=repository).code == CLEAN


def test_a_pin_of_a_name_that_upstream_removed_keeps_its_sentence(repository: Path) -> None:
    gone = (repository / "patches.py").read_text().replace("_preprocess", "no_such_method")
    (repository / "patches.py").write_text(gone)
    lock = repository / pins.LOCK
    lock.write_text(lock.read_text().replace("_preprocess", "no_such_method"))
    unpatch("pin", cwd=repository)
    assert 'why = "our embedding"' in lock.read_text()


def test_a_dropped_pin_is_told_with_its_reason(repository: Path) -> None:
    (repository / "patches.py").write_text("x = 1\n")
    result = unpatch("pin", cwd=repository)
    assert f"Dropped {PREPROCESS}, which is no longer patched: our embedding" in result.err


@pytest.mark.parametrize(
    ("days", "code", "said"), [(40, CLEAN, ""), (10, CLEAN, "in 10 days"), (-1, FINDINGS, "MCU806")]
)
def test_a_review_is_announced_and_then_overdue(repository: Path, days: int, code: int, said: str) -> None:
    edit(repository, in_days(days))
    result = unpatch("check", cwd=repository)
    assert (result.code, said in result.out + result.err) == (code, True)
    assert ("due for review" in " ".join((result.out + result.err).split())) == bool(said)


def test_a_dependency_that_is_not_pinned_fails(repository: Path) -> None:
    edit(repository, 'depends_on = ["megatron.core.utils.get_model_config"]')
    result = unpatch("check", cwd=repository)
    assert result.code == FINDINGS
    assert "depends on `megatron.core.utils.get_model_config`" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('review_by = "soon"', "must be a date such as"),
        ('on_change = "shrug"', "must be one of raise, warn, skip"),
        ("depends_on = [1]", "must be lists of names"),
    ],
)
def test_a_wrong_value_is_named(repository: Path, line: str, said: str) -> None:
    edit(repository, line)
    with pytest.raises(UsageError, match=said):
        pins.load(repository / pins.LOCK)
    assert unpatch("check", cwd=repository).code == ERROR


def test_a_wrong_date_on_the_command_line(repository: Path) -> None:
    result = unpatch("pin", "--review-by", "soon", cwd=repository)
    assert (result.code, "pass a date such as" in result.err) == (ERROR, True)


JOB = """
    import warnings
    from mcore_unpatch import pins

    warnings.simplefilter("always")

    @pins.guard("GPTModel._preprocess")
    def install():
        print("installed")
        return "value"

    print(install())
    with pins.guard("GPTModel._preprocess") as may:
        print("may" if may else "may not")
"""


def run_job(repository: Path, release: str) -> subprocess.CompletedProcess[str]:
    write_files(repository, {"job.py": JOB})
    path = str(unpacked("megatron-core", release))
    code = f"import sys; sys.path.insert(0, {path!r}); import runpy; runpy.run_path('job.py')"
    return subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=False)


def test_the_guard_lets_a_patch_in_on_what_it_was_written_for(repository: Path) -> None:
    done = run_job(repository, "0.18.2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "installed\nvalue\nmay\n", "")


@pytest.mark.parametrize(
    ("on_change", "code", "out", "said"),
    [
        ("", 1, "", "PinError"),
        ("raise", 1, "", "PinError"),
        ("warn", 0, "installed\nvalue\nmay\n", "It is installed all the same"),
        ("skip", 0, "None\nmay not\n", "It is skipped"),
    ],
)
def test_the_guard_does_what_the_lock_says(repository: Path, on_change: str, code: int, out: str, said: str) -> None:
    edit(repository, f'on_change = "{on_change}"' if on_change else "")
    done = run_job(repository, "0.19.2")
    assert (done.returncode, done.stdout) == (code, out), done.stderr
    assert said in done.stderr
    assert "changed its body" in done.stderr
    assert "our embedding" in done.stderr


def test_the_guard_wants_a_pin(repository: Path) -> None:
    with (
        pytest.raises(pins.PinError, match=r"no pin for GPTModel\.forward"),
        pins.guard("GPTModel.forward", repository / pins.LOCK),
    ):
        pass
