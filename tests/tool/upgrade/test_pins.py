"""`unpatch pin`, the lock it writes, the gate that reads it, and the same at run time."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch
from downloads import unpacked

from mcore_unpatch import pins
from mcore_unpatch.errors import UsageError
from mcore_unpatch.megatron import known

PREPROCESS = "megatron.core.models.gpt.gpt_model.GPTModel._preprocess"
PATCH = """
    from megatron.core.models.gpt.gpt_model import GPTModel

    def preprocess(self, *args, **kwargs):
        return 1

    GPTModel._preprocess = preprocess
"""

PATCH_FILE = """
diff --git a/megatron/core/utils.py b/megatron/core/utils.py
--- a/megatron/core/utils.py
+++ b/megatron/core/utils.py
@@ -1,3 +1,3 @@ def get_model_config(model):
-    return a
+    return b
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_files(tmp_path, {"patches.py": PATCH, "requirements.txt": "megatron-core==0.18.2\n", "pyproject.toml": ""})
    return tmp_path


def pin(repository: Path, *arguments: str) -> str:
    result = unpatch("pin", *arguments, cwd=repository)
    assert result.code == CLEAN, result.err
    return (repository / pins.LOCK).read_text()


def rules(repository: Path, *arguments: str) -> list[str]:
    return unpatch("check", "--output-format", "json", *arguments, cwd=repository).rules


def test_a_pinned_patch_passes_the_gate_until_what_it_replaces_changes(repository: Path) -> None:
    assert len(rules(repository)) == 1
    text = pin(repository, "--why", "the hook is too late for this")
    assert f'name = "{PREPROCESS}"\ndigest = {{ "0.18.2" = "' in text
    assert 'where = ["patches.py"]\nwhy = "the hook is too late for this"\n' in text
    assert unpatch("check", cwd=repository).code == CLEAN
    result = unpatch("check", "--target-mcore", "0.19", cwd=repository)
    assert result.code == FINDINGS
    assert "MCU801" in result.out
    assert "patches.py\n  7:1  MCU801  " in result.out  # the line of the patch
    assert "changed its body" in result.out
    assert "1 pin that does not hold" in result.out


def test_a_pin_speaks_for_the_patches_it_was_written_for_and_for_no_other(repository: Path) -> None:
    text = PATCH.replace("GPTModel._preprocess =", "def install():\n        GPTModel._preprocess =")
    write_files(repository, {"patches.py": text})
    assert 'where = ["patches.py::install"]' in pin(repository)
    write_files(repository, {"patches.py": "\n\n    x = 1" + text})
    assert unpatch("check", cwd=repository).err == ""  # moved lines do not matter
    write_files(repository, {"lib/second.py": PATCH})
    result = unpatch("check", cwd=repository)
    assert result.code == FINDINGS
    assert "unpatch.lock pins it in patches.py::install, not here" in " ".join(result.out.split())
    assert len(rules(repository)) == 1
    assert 'where = ["lib/second.py", "patches.py::install"]' in pin(repository, "lib")
    assert rules(repository) == []
    write_files(repository, {"lib/second.py": f"{PATCH}\n    GPTModel._preprocess = print"})
    assert len(rules(repository)) == 1  # the same name in the same place, once more
    (repository / "lib/second.py").rename(repository / "third.py")
    result = unpatch("check", cwd=repository)
    assert "pins GPTModel._preprocess in lib/second.py, where nothing patches it; run `unpatch pin`" in result.err
    assert result.out.count("not here") == 2


def test_what_megatron_changed_is_shown_where_its_source_is_at_hand(
    repository: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = tmp_path_factory.mktemp("cache")
    for release in ("0.18.2", "0.19.2"):
        (cache / "mcore-unpatch/megatron-core").mkdir(parents=True, exist_ok=True)
        (cache / "mcore-unpatch/megatron-core" / release).symlink_to(unpacked("megatron-core", release))
    pin(repository)
    to = ("check", "--target-mcore", "0.19.2")
    said = unpatch(*to, cwd=repository, env={"XDG_CACHE_HOME": str(cache)}).out
    assert "--- megatron-core 0.18.2\n         +++ megatron-core 0.19.2\n" in said
    assert "+        if self.config.sequence_parallel and not self.embedding.scatter_to_sequence_parallel:" in said
    (one,) = json.loads(
        unpatch(*to, "--output-format", "json", cwd=repository, env={"XDG_CACHE_HOME": str(cache)}).out
    )["findings"]
    assert one["upstream"].startswith("--- megatron-core 0.18.2\n")


def test_a_name_that_moved_is_pinned_where_it_stands_on_each_release(repository: Path) -> None:
    """0.18 defines the node in another module than 0.19 does, and a release branch is a release as well."""
    patch = """
        from megatron.core.models.common.model_chunk_schedule_plan import TransformerModelChunkSchedulePlan

        def install(plan: TransformerModelChunkSchedulePlan):
            plan.post_process.forward_impl = print
    """
    npu = "FROM x\nRUN git clone -b core_r0.16.0 https://github.com/NVIDIA/Megatron-LM\n"
    write_files(repository, {"patches.py": patch, "docker/npu/Dockerfile": npu})
    text = pin(repository)
    (one,) = pins.load(repository / pins.LOCK).pins.values()
    assert (one.short, list(one.digest)) == ("PostProcessNode.forward_impl", ["0.18.2", "0.16.1"])
    assert pins.ABSENT not in one.digest.values()
    assert len(text.split("[[pin]]")[1].splitlines()) <= 8
    assert pins.difference(one, known.model("0.19.2")) == "changed its body"


def test_a_pin_past_its_release_and_one_whose_patch_is_gone(repository: Path) -> None:
    pin(repository, "--until", "0.18")
    assert rules(repository) == ["MCU802"]
    pin(repository, "--until", "Megatron-LM#7008")
    assert rules(repository) == []
    (repository / "patches.py").write_text("x = 1\n")
    assert rules(repository) == ["MCU804"]
    assert rules(repository, "patches.py") == []  # a part of the repository cannot tell
    assert "[[pin]]" not in pin(repository)


def test_patches_without_a_pin_fail_on_request_even_in_a_baseline(repository: Path) -> None:
    pin(repository)
    write_files(repository, {"second.py": PATCH.replace("_preprocess", "_postprocess")})
    unpatch("check", "--write-baseline", "--baseline", "known.json", cwd=repository)
    assert rules(repository, "--baseline", "known.json") == []
    assert "MCU803" in rules(repository, "--require-pins", "--baseline", "known.json")


def test_requiring_pins_without_a_lock_is_a_usage_error(repository: Path) -> None:
    result = unpatch("check", "--require-pins", cwd=repository)
    assert (result.code, "unpatch pin" in result.err) == (ERROR, True)


def test_any_name_can_be_pinned_and_what_was_said_before_is_kept(repository: Path) -> None:
    pin(repository, "--why", "because")
    text = pin(
        repository, "megatron.core.utils.get_model_config", "megatron.core.parallel_state", "--why", "we lean on it"
    )
    assert text.count("[[pin]]") == 3
    assert text.count('why = "because"') == 1
    assert text.count('why = "we lean on it"') == 2
    assert pin(repository) == text
    assert rules(repository) == []
    result = unpatch("pin", "megatron.core.no_such_name", cwd=repository)
    assert (result.code, "has no megatron.core.no_such_name" in result.err) == (ERROR, True)
    assert (repository / pins.LOCK).read_text() == text


@pytest.mark.parametrize(
    ("name", "releases"),
    [
        ("megatron.core.optimizer.distrib_optimizer.Adam", ("0.17.0", "0.14.0")),  # imported from elsewhere, no body
        ("megatron.core.transformer.moe.router.TopKRouter.routing", ("0.16.1", "0.15.3")),  # another signature
        (PREPROCESS, ("0.19.2", "0.12.3")),  # not there
    ],
)
def test_a_name_may_be_another_on_each_megatron_that_is_run(name: str, releases: tuple[str, str]) -> None:
    newest, older = map(known.model, releases)
    alone, both = (pins.pin(name, some, ["a.py"]) for some in ([newest], [newest, older]))
    assert alone is not None and both is not None
    assert pins.difference(alone, older) is not None
    assert (pins.difference(both, newest), pins.difference(both, older)) == (None, None)
    assert list(both.digest) == list(releases)


def test_only_releases_that_files_name_are_pinned_and_another_one_is_told(repository: Path) -> None:
    """A commit between 0.18 and 0.19 is no reason to accept what a name is on 0.19."""
    clone = "RUN git clone https://github.com/NVIDIA/Megatron-LM && cd Megatron-LM && git checkout 0823c731\n"
    write_files(repository, {"docker/Dockerfile": f"FROM x\n{clone}"})
    assert "0823c731" in unpatch("stacks", cwd=repository).out
    assert pins.LOCK in unpatch("pin", cwd=repository).out
    assert pins.load(repository / pins.LOCK).releases == ["0.18.2"]
    assert unpatch("check", cwd=repository).err == ""
    later = unpatch("check", "--target-mcore", "0.19.2", cwd=repository)
    assert later.code == FINDINGS
    assert "on megatron-core 0.19.2; its pin is for 0.18.2" in " ".join(later.out.split())
    assert "was written for megatron-core 0.18.2, not for 0.19.2" in later.err


def test_a_commit_is_pinned_as_the_release_that_stands_for_it_and_that_is_said(repository: Path) -> None:
    clone = "RUN git clone https://github.com/NVIDIA/Megatron-LM && cd Megatron-LM && git checkout 0823c731\n"
    write_files(repository, {"docker/Dockerfile": f"FROM x\n{clone}", "requirements.txt": ""})
    result = unpatch("pin", cwd=repository)
    assert "0.19.0 stands for 0823c731 (docker/Dockerfile:2)" in result.err
    assert pins.load(repository / pins.LOCK).releases == ["0.19.0"]


def test_what_a_patch_adds_is_pinned_until_megatron_has_it() -> None:
    without, having = known.model("0.12.3"), known.model("0.18.2")
    added = pins.pin(PREPROCESS, [without], ["a.py"])
    assert added is not None and added.is_added
    assert pins.difference(added, without) is None
    assert pins.difference(added, having) == "is new in Megatron: the patch now replaces it"
    assert pins.pin(PREPROCESS, [without]) is None
    assert pins.pin("megatron.training.training.train_step", [without], ["a.py"]) is None  # beyond what is known
    assert (
        pins.pin(PREPROCESS, [without], ["a.py"], pins.pin(PREPROCESS, [having], ["a.py"])) is None
    )  # removed, not added


def test_the_recommended_sequence_ends_green(repository: Path) -> None:
    uses = "from verl.models.mcore.mtp_patch import patch_postprocess\npatch_postprocess(1)\n"
    write_files(repository, {"uses.py": uses, "a.patch": PATCH_FILE})
    result = unpatch("check", cwd=repository)
    assert "To keep them: `unpatch pin`, then `unpatch check --write-baseline`" in " ".join(result.out.split())
    said = unpatch("pin", cwd=repository).out
    assert "Not pinned: 1 use of a known patch and 1 patch file. A baseline accepts" in said
    assert "Next: unpatch check --write-baseline\n" in said
    assert unpatch("check", cwd=repository).code == FINDINGS
    assert unpatch("check", "--write-baseline", cwd=repository).code == CLEAN
    assert unpatch("check", cwd=repository).code == CLEAN
    assert unpatch("pin", cwd=repository).out.endswith("Next: unpatch check\n")


def test_what_can_be_deleted_or_is_not_there_is_told_once_and_not_pinned(tmp_path: Path) -> None:
    text = """
        import megatron.core
        from megatron.core.models.gpt.gpt_model import GPTModel
        from megatron.training import training
        from packaging.version import Version

        if Version(megatron.core.__version__) >= Version("0.15"):
            GPTModel.forward = print
        GPTModel.set_input_tensor = print
        training.train_step = print
        training.train_step = len
    """
    write_files(tmp_path, {"old.py": text, "requirements.txt": "megatron-core==0.12.1\n"})
    result = unpatch("pin", cwd=tmp_path)
    assert result.err == (
        "note: 1 patch can be deleted and needs no pin (`unpatch scan --verbose` says why): old.py:8.\n"
        "note: megatron-core 0.12.1 does not hold training.train_step: not pinned. Where a checkout is run that does, "
        "pass it with --target-mcore PATH.\n"
    )
    assert [one.short for one in pins.load(tmp_path / pins.LOCK).pins.values()] == ["GPTModel.set_input_tensor"]
    assert result.out.endswith("Next: unpatch check --write-baseline\n")


def test_where_no_name_is_there_nothing_is_pinned(tmp_path: Path) -> None:
    text = "from megatron.training import training\ntraining.train_step = print\n"
    write_files(tmp_path, {"old.py": text, "requirements.txt": "megatron-core==0.12.1\n"})
    result = unpatch("pin", cwd=tmp_path)
    assert result.code == ERROR
    assert "None of the patched names is in megatron-core 0.12.1; nothing was pinned." in result.err
    assert not (tmp_path / pins.LOCK).exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("version = 2\n", "not a lock of version 1"),
        ("version = 1\n[[pin]]\nname = 1\n", "the keys are name"),
        ("version = 1\n[[pin]]\nwhy = 'x'\n", "the keys are name"),
        ("version = 1\npin = 3\n", "not a lock of version 1"),
        ("version = 1\n[[pin]]\nname = 'x'\n", "the keys are name"),
        ("version = 1\n[[pin]]\nname = 'x'\ndigest = {}\n", "the keys are name"),
        ("version = 1\n[[pin]]\nname = 'x'\ndigest = {y = 'z'}\n", "x has no valid release"),
        ("version = 1\n[[pin]]\nname = 'x'\ndigest = {'0.18.2' = 1}\n", "`digest` one text for each release"),
        ("= 1", "not valid TOML"),
        (f"version = {'9' * 5000}", "not valid TOML"),
        ("version = 1\n[[pin]]\nname = 'x'\nwhere = 'a.py'\n", "the keys are name"),
        ("version = 1\n[[pin]]\nname = 'x'\ndigest = {'0.18.2' = 'y'}\nwhere = [1]\n", "must be a list of texts"),
    ],
)
def test_a_damaged_lock_is_an_error_with_the_reason(repository: Path, text: str, said: str) -> None:
    (repository / pins.LOCK).write_text(text)
    with pytest.raises(UsageError, match=said):
        pins.load(repository / pins.LOCK)
    assert unpatch("check", cwd=repository).code == ERROR


def test_a_linked_lock_is_not_written_through(repository: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    (repository / pins.LOCK).symlink_to(outside)
    assert unpatch("pin", cwd=repository).code == ERROR
    assert outside.read_text() == "mine"


def run_job(repository: Path, release: str) -> subprocess.CompletedProcess[str]:
    """A training job in miniature: its first statement looks at the pins."""
    job = """
        from mcore_unpatch import pins

        pins.verify()

        import sys

        print(sorted({"torch", "libcst", "megatron.core"} & set(sys.modules)))
    """
    write_files(repository, {"job.py": job})
    path = str(unpacked("megatron-core", release))
    code = f"import sys; sys.path.insert(0, {path!r}); import runpy; runpy.run_path('job.py')"
    return subprocess.run([sys.executable, "-c", code], cwd=repository, capture_output=True, text=True, check=False)


def test_at_run_time_the_installed_megatron_is_held_to_the_lock(repository: Path) -> None:
    pin(repository, "--why", "the reason")
    fine = run_job(repository, "0.18.2")
    assert (fine.returncode, fine.stdout) == (0, "[]\n"), fine.stderr
    broken = run_job(repository, "0.19.2")
    assert broken.returncode == 1
    assert f"`{PREPROCESS}` changed its body (the reason)" in broken.stderr
    assert "megatron-core 0.19.2 is not what" in broken.stderr


def test_a_pin_holds_on_every_megatron_that_the_repository_runs(repository: Path) -> None:
    image = "FROM x\nRUN pip install megatron-core=={}\n"
    write_files(repository, {"docker/npu/Dockerfile": image.format("0.16.1")})
    text = pin(repository)
    assert ', "0.16.1" = "' in text
    assert rules(repository) == []
    lock = pins.load(repository / pins.LOCK)
    assert pins.differences(lock.pins.values(), known.model("0.16.1")) == []
    write_files(repository, {"docker/npu/Dockerfile": image.format("0.12.0")})
    result = unpatch("check", cwd=repository)
    assert "GPTModel._preprocess" in result.out
    assert "on megatron-core 0.12.0" in " ".join(result.out.split())
