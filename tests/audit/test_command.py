"""`unpatch audit`: real programs under the audit, and the comparison of ranks."""

import json
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, importing, unpatch, unpatch_process
from programs import environment
from small_megatron import BY_NAME

from mcore_unpatch.audit.origin import CodeOrigin
from mcore_unpatch.audit.report import AuditReport, Deviation, load

FORWARD = "megatron.core.models.gpt.gpt_model.GPTModel.forward"
PREPROCESS = "megatron.core.models.gpt.gpt_model.GPTModel._preprocess"
REPOSITORY = {
    "pyproject.toml": "",
    "patches.py": """
        from megatron.core.models.gpt.gpt_model import GPTModel

        def preprocess(self, *args, **kwargs):
            return 1

        def install():
            GPTModel._preprocess = preprocess

        def never_called():
            GPTModel.forward = preprocess
    """,
    "train.py": """
        import os, sys
        import library
        import patches

        patches.install()
        if "--forward" in sys.argv:
            import tempfile, torch
            from megatron.core import parallel_state
            from mcore_unpatch.verify.models import Setting, batch, build

            os.environ.pop("RANK", None)
            name = "file://" + tempfile.mktemp()
            torch.distributed.init_process_group("gloo", init_method=name, rank=0, world_size=1)
            parallel_state.initialize_model_parallel()
            model = build(Setting("gpt"))
            try:
                model(**batch(Setting("gpt"), 0))
            finally:
                os._exit(0)  # nothing that is registered for the exit runs
        sys.exit(int(sys.argv[1]) if sys.argv[1:] else 0)
    """,
}
LIBRARY = """
    import megatron.core.parallel_state as state

    def rank():
        return 0

    setattr(state, "get_tensor_model_parallel_rank", rank)
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_files(tmp_path / "repository", REPOSITORY)
    write_files(tmp_path / "elsewhere", {"library.py": LIBRARY})
    write_files(tmp_path / "small", BY_NAME)
    return tmp_path / "repository"


def test_live_patches_are_joined_with_lines_of_the_repository(repository: Path) -> None:
    env = importing(repository.parent / "elsewhere", repository.parent / "small")
    result = unpatch_process("audit", "--json", "-o", "report.json", "-m", "train", "7", cwd=repository, env=env)
    assert result.code == 7, result.err  # the program's own exit code comes first
    data = json.loads((repository / "report.json").read_text())
    assert (data["version"], data["exit_code"]) == (1, 7)
    made = {one["deviation"]["name"]: (one["line"], one["rule"], one["package"]) for one in data["patches"]}
    assert made[PREPROCESS] == ("patches.py:8", "MCU601", "")
    assert made["megatron.core.parallel_state.get_tensor_model_parallel_rank"] == ("", "", "library")
    assert [(one["target"], one["path"], one["line"]) for one in data["never_ran"]] == [(FORWARD, "patches.py", 11)]


def test_all_that_is_printed_of_live_patches(repository: Path) -> None:
    env = importing(repository.parent / "elsewhere", repository.parent / "small")
    result = unpatch_process("audit", "-m", "train", cwd=repository, env=env)
    assert result.code == FINDINGS, result.err
    here, there = repository / "patches.py", repository.parent / "elsewhere" / "library.py"
    rank = "megatron.core.parallel_state.get_tensor_model_parallel_rank"
    assert result.out.splitlines() == [
        "2 deviations from megatron-core 0.19.2 in 1 process.",
        f"  {PREPROCESS} is rebound, by patches.preprocess ({here}:4)",
        "      = made by patches.py:8 (MCU601)",
        f"  {rank} is rebound, by library.rank ({there}:4)",
        "      = no line of this repository: it comes from library",
        f"  patches.py:11  {FORWARD} was not patched in this run",
    ]


def test_a_program_that_dies_after_its_first_forward_has_reported(repository: Path, processes: None) -> None:
    env = environment("0.19.2", repository.parent / "elsewhere")
    result = unpatch_process("audit", "--", "train.py", "--forward", cwd=repository, env=env)
    assert result.code == FINDINGS, result.err
    assert "= made by patches.py:8 (MCU601)" in result.out
    assert "= no line of this repository: it comes from library" in result.out
    assert f"patches.py:11  {FORWARD} was not patched in this run" in result.out


def test_a_program_without_megatron(tmp_path: Path) -> None:
    write_files(tmp_path, {"pyproject.toml": "", "sitecustomize.py": "print('mine runs')", "main.py": "print('hello')"})
    result = unpatch_process("audit", "--", "main.py", cwd=tmp_path, env=importing(tmp_path))
    assert result.code == ERROR
    assert "mine runs\nhello\n" in result.out  # the sitecustomize of the user is not lost
    assert "No process of this program imported megatron.core" in result.err


def test_usage_errors(tmp_path: Path) -> None:
    assert unpatch("audit", cwd=tmp_path).code == ERROR
    assert "cannot be run" in unpatch("audit", "--", "no-such-program", cwd=tmp_path).err
    (tmp_path / "a.json").write_text("{}")
    assert "Name two reports" in unpatch("audit", "diff", "a.json", cwd=tmp_path).err
    assert "is not a report" in unpatch("audit", "diff", "a.json", "a.json", cwd=tmp_path).err


def test_ranks_that_differ(tmp_path: Path) -> None:
    patch = Deviation("method", FORWARD, CodeOrigin("verl.patch.forward", "patch.py", 3, "verl"), where=("decoder",))
    reports = [AuditReport("0.19.2", f"rank{number}", [patch] if number else []) for number in range(3)]
    files = [report.save(tmp_path).name for report in reports]
    assert load(tmp_path / files[1]) == reports[1]
    result = unpatch("audit", "diff", *files, cwd=tmp_path)
    assert result.code == FINDINGS
    assert result.out.splitlines()[1:] == ["      on rank1, rank2", "      not on rank0"]
    assert FORWARD in result.out
    same = unpatch("audit", "diff", files[1], files[2], cwd=tmp_path)
    assert (same.code, same.out) == (CLEAN, "2 reports, no difference.\n")
