"""Ways around the gate that let a patch through once: each is told or counts now."""

import pytest
from command import CLEAN, ERROR, FINDINGS, unpatch
from repository import Repository

IMPORT = "from megatron.core.models.gpt import GPTModel\n"
PATCH = f"{IMPORT}def fast(self, input_ids): ...\nGPTModel.forward = fast\n"
POSSIBLE = """import types
from megatron.core import mpu
def fast(self, x): ...
def install(model):
    model.forward = types.MethodType(fast, model)
"""
RESTORED = f"""{IMPORT}def run(f):
    kept = GPTModel.forward
    GPTModel.forward = f
    try:
        f()
    finally:
        GPTModel.forward = kept
"""
FOR_GOOD = f"{IMPORT}def run(f):\n    GPTModel.forward = f\n    f()\n"


def on_main(repository: Repository, source: dict[str, str]) -> None:
    """What the base has, too."""
    repository.commit(source)
    repository.git("branch", "--quiet", "--force", "main")


def messages(repository: Repository, *arguments: str) -> list[str]:
    result = unpatch("check", "--base", "main", "--output-format", "json", *arguments, cwd=repository.path)
    found = result.json["findings"]
    assert result.code == (FINDINGS if found else CLEAN), result.err
    return [finding["message"] for finding in found]


def test_a_large_file_that_reaches_megatron_through_another(repository: Repository) -> None:
    large = "Model.forward = None\n" + f"# {'generated ' * 100}\n" * 5000
    repository.commit({"names.py": IMPORT.replace("GPTModel\n", "GPTModel as Model\n")})
    repository.commit({"p.py": "from names import Model\n" + large, "q.py": large})
    result = unpatch("check", "--base", "main", cwd=repository.path)
    assert result.code == ERROR
    assert "p.py: 5 MB is over the limit" in result.err
    assert "q.py" not in result.err  # it imports nobody


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_possible_patch_is_told(style: str, repository: Repository) -> None:
    repository.commit({"p.py": POSSIBLE})
    result = unpatch("check", "--base", "main", "--output-format", style, cwd=repository.path)
    assert (result.code, result.err) == (
        CLEAN,
        "note: 1 possible one, by a method's name alone, not counted\n",
    )
    on_main(repository, {})
    assert unpatch("check", "--base", "main", "plain.py", cwd=repository.path).code == CLEAN
    repository.commit({"plain.py": "x = 2\n"})
    assert unpatch("check", "--base", "main", cwd=repository.path).err == ""


def test_a_baseline_of_certain_ones_is_not_used_up_by_a_possible_one(repository: Repository) -> None:
    repository.commit({"p.py": POSSIBLE + PATCH})
    assert unpatch("check", "--write-baseline", cwd=repository.path).code == CLEAN
    assert unpatch("check", cwd=repository.path).code == CLEAN


def test_one_patch_for_another_in_a_file_of_the_baseline(repository: Repository) -> None:
    repository.write({"p.py": PATCH})
    assert unpatch("check", "--write-baseline", cwd=repository.path).code == CLEAN
    on_main(repository, {})
    repository.commit({"p.py": PATCH.replace(".forward", "._postprocess")})
    assert ["_postprocess" in message for message in messages(repository)] == [True]
    assert unpatch("check", cwd=repository.path).code == CLEAN  # the counts are the same


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ("if False:\n    {}", "if True:\n    {}", "it did not run"),
        (
            'if Version(__version__) < Version("0.10"):\n    {}',
            'if Version(__version__) < Version("0.99"):\n    {}',
            "it did",
        ),
    ],
)
def test_a_patch_that_did_not_run(before: str, now: str, said: str, repository: Repository) -> None:
    head = (
        f"from packaging.version import Version\nfrom megatron.core import __version__\n{IMPORT}def fast(self): ...\n"
    )
    line = "GPTModel.forward = fast\n"
    on_main(repository, {"p.py": head + before.format(line)})
    repository.commit({"p.py": head + now.format(line)})
    assert [message.rpartition("; before this change ")[2][: len(said)] for message in messages(repository)] == [said]
    on_main(repository, {})
    repository.commit({"p.py": head + before.format(line)})
    assert messages(repository) == []  # to do less is nothing new


def test_a_patch_that_was_undone(repository: Repository) -> None:
    on_main(repository, {"p.py": RESTORED})
    repository.commit({"p.py": FOR_GOOD})
    assert [message.partition("; before ")[2] for message in messages(repository)] == [
        "this change it was undone again"
    ]


def test_a_patch_that_leaves_the_tests(repository: Repository) -> None:
    on_main(repository, {"tests/test_p.py": PATCH})
    repository.git("mv", "tests/test_p.py", "p.py")
    repository.commit()
    assert [message.partition("; before ")[2] for message in messages(repository)] == ["this change it stood in a test"]


def test_two_alike_of_which_one_did_not_run(repository: Repository) -> None:
    both = f"{PATCH}if False:\n    GPTModel.forward = fast\n"
    on_main(repository, {"p.py": both})
    repository.commit({"p.py": both.replace("fast\nif False", "fast\nx = 1\nif False")})
    assert messages(repository) == []
    repository.commit({"p.py": both.replace("if False", "if True")})
    assert len(messages(repository)) == 1


def test_a_new_file_in_a_fork_of_megatron_is_spoken_of(repository: Repository) -> None:
    on_main(repository, {"megatron/core/package_info.py": "", "megatron/core/__init__.py": ""})
    repository.commit({"megatron/core/ours.py": PATCH})
    assert "changed, which is not read for patches: megatron/core/ours.py." in (
        unpatch("check", "--base", "main", cwd=repository.path).err
    )


def test_a_base_that_is_checked_out_compares_nothing_that_is_committed(repository: Repository) -> None:
    repository.commit({"pyproject.toml": '[tool.unpatch]\nbase = "HEAD"\n', "p.py": PATCH})
    assert "The base 'HEAD' is the commit that is checked out" in unpatch("check", cwd=repository.path).err


def test_parents_that_a_file_claims(repository: Repository) -> None:
    repository.commit({"p.py": PATCH})
    parents = f"{repository.git('rev-parse', 'main')} {repository.git('rev-parse', 'HEAD')}\n"
    (repository.path / ".git/info").mkdir(exist_ok=True)
    (repository.path / ".git/info/grafts").write_text(parents)
    assert len(messages(repository)) == 1


def test_a_pointer_of_git_lfs(repository: Repository) -> None:
    (repository.path / "megatron_p.py").write_text("version https://git-lfs.example/spec/v1\noid sha256:12ab\n")
    assert "a Git LFS pointer, not the file itself: run `git lfs pull`" in unpatch("check", cwd=repository.path).err


def test_branches_that_have_merged_each_other(repository: Repository) -> None:
    """Then they part at two commits, and each of these lacks what the other has."""
    settings = {"pyproject.toml": '[tool.unpatch]\nexclude = ["old"]\n'}
    ours = repository.commit({"a.py": PATCH})
    repository.git("checkout", "--quiet", "main")
    theirs = repository.commit({"b.py": PATCH.replace(".forward", "._postprocess"), **settings})
    for branch, other in (("work", theirs), ("main", ours)):
        repository.git("checkout", "--quiet", branch)
        repository.git("merge", "--quiet", other)
    repository.git("checkout", "--quiet", "work")
    assert messages(repository) == []
    repository.commit({"c.py": PATCH.replace(".forward", ".set_input_tensor")})
    assert ["set_input_tensor" in message for message in messages(repository)] == [True]
