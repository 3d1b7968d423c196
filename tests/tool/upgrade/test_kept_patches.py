"""What people write into `unpatch.lock`, and `pins.guard` around their own install functions."""

import subprocess
import sys
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, unpatch
from downloads import unpacked

from mcore_unpatch import pins

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


JOB = """
    from mcore_unpatch import pins

    @pins.guard("GPTModel._preprocess")
    def install():
        print("installed")
        return "value"

    print(install())
    with pins.guard("GPTModel._preprocess"):
        print("installed too")
"""


def run_job(repository: Path, release: str) -> subprocess.CompletedProcess[str]:
    write_files(repository, {"job.py": JOB})
    path = str(unpacked("megatron-core", release))
    code = f"import sys; sys.path.insert(0, {path!r}); import runpy; runpy.run_path('job.py')"
    return subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=False)


def test_the_guard_lets_a_patch_in_on_what_it_was_written_for(repository: Path) -> None:
    done = run_job(repository, "0.18.2")
    assert (done.returncode, done.stdout, done.stderr) == (0, "installed\nvalue\ninstalled too\n", "")


def test_the_guard_keeps_it_off_another_megatron(repository: Path) -> None:
    done = run_job(repository, "0.19.2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "GPTModel._preprocess` (our embedding) was not written for this Megatron" in done.stderr


def test_the_guard_wants_a_pin(repository: Path) -> None:
    with (
        pytest.raises(pins.PinError, match=r"no pin for GPTModel\.forward"),
        pins.guard("GPTModel.forward", repository / pins.LOCK),
    ):
        pass
