"""`unpatch upgrade` as a user calls it."""

import json
from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, FINDINGS, unpatch

from mcore_unpatch.errors import UsageError
from mcore_unpatch.upgrade.matrix import releases_of

PATCH = """
    from megatron.core.models.gpt.fine_grained_callables import PostProcessNode

    def forward_impl(self):
        return None

    PostProcessNode.forward_impl = forward_impl
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    write_files(tmp_path, {"patches.py": PATCH, "requirements.txt": "megatron-core==0.18.2\n"})
    return tmp_path


def test_github_and_sarif_carry_the_reasons(repository: Path) -> None:
    assert "::warning file=patches.py,line=7" in unpatch("upgrade", "--output-format", "github", cwd=repository).out
    sarif = json.loads(unpatch("upgrade", "--output-format", "sarif", cwd=repository).out)
    assert "ImportError" in sarif["runs"][0]["results"][0]["message"]["text"]


def test_check_fails_only_where_a_patch_needs_work(repository: Path) -> None:
    assert unpatch("upgrade", "--check", "--to", "0.19", cwd=repository).code == FINDINGS
    assert unpatch("upgrade", "--check", "--from", "0.18.0", "--to", "0.18.2", cwd=repository).code == CLEAN


def test_a_release_without_a_pin_or_a_name_is_asked_for(tmp_path: Path) -> None:
    write_files(tmp_path, {"patches.py": PATCH})
    result = unpatch("upgrade", cwd=tmp_path)
    assert result.code == ERROR
    assert "--from" in result.err
    write_files(tmp_path, {"README.md": "pip install megatron-core==0.16.1\n"})
    said = " ".join(unpatch("upgrade", cwd=tmp_path).err.split())
    assert said.endswith("or `installed`. 0.16.1 (README.md:1) is only a hint.")


def test_nothing_found(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": "x = 1\n"})
    result = unpatch("upgrade", "--from", "0.18", cwd=tmp_path)
    assert result.code == CLEAN
    assert result.out.splitlines()[-1] == "No use of Megatron Core found in 1 file."


def test_the_matrix_tells_of_each_release_what_raises_and_which_are_supported(repository: Path) -> None:
    result = unpatch("upgrade", "--matrix", "0.17..0.19.2", cwd=repository)
    assert result.code == CLEAN
    assert [line.split() for line in result.out.splitlines()[2:8]] == [
        ["0.17.0", "-"],
        ["0.17.1", "-"],
        ["0.18.0", "-"],
        ["0.18.2", "-", "in", "use"],
        ["0.19.0", "1", "patches.py:2"],
        ["0.19.2", "1", "patches.py:2"],
    ]
    assert "`megatron-core>=0.17.0,<=0.18.2`" in " ".join(result.out.split())
    data = unpatch("upgrade", "--matrix", "0.18..0.19", "--output-format", "json", cwd=repository).json
    assert (data["floor"], data["ceiling"]) == ("0.18.0", "0.18.2")


def test_no_range_is_recommended_where_lines_raise_on_the_release_in_use(repository: Path) -> None:
    """They raise on every release of the range alike, and are nothing that an upgrade breaks."""
    write_files(
        repository, {"old.py": "from megatron.core.dist_checkpointing.strategies import base\nbase.async_calls\n"}
    )
    result = unpatch("upgrade", "--matrix", "0.18..0.19.2", cwd=repository)
    assert "  0.18.2       1  in use, old.py:2\n" in result.out
    assert "No range to recommend: lines raise on megatron-core 0.18.2, which is in use" in " ".join(result.out.split())
    data = unpatch("upgrade", "--matrix", "0.18..0.19", "--output-format", "json", cwd=repository).json
    assert (data["floor"], data["ceiling"]) == (None, None)
    outside = unpatch("upgrade", "--matrix", "0.17", "--from", "0.18.2", cwd=repository)
    assert outside.code == ERROR
    other = unpatch("upgrade", "--matrix", "0.16..0.17", "--from", "0.18.2", cwd=repository).out
    assert "which is in use, or it is not in this range." in " ".join(other.split())


@pytest.mark.parametrize(
    ("given", "said"), [("0.18", "write it like"), ("0.19..0.18", "newer"), ("0.18..main", "PATH")]
)
def test_a_range_that_is_none(repository: Path, given: str, said: str) -> None:
    result = unpatch("upgrade", "--matrix", given, cwd=repository)
    assert (result.code, said in result.err) == (ERROR, True)


def test_a_lock_changes_nothing_in_the_report(tmp_path: Path) -> None:
    specs = "from megatron.core.models.gpt import moe_module_specs\nfrom megatron.core.transformer.moe import experts\n"
    unread = "class Mine: ...\nexperts.TEGroupedMLP = Mine\nmoe_module_specs.GroupedMLP = Mine\n"
    write_files(tmp_path, {"a.py": specs + unread, "requirements.txt": "megatron-core==0.18.2\n"})
    before = unpatch("upgrade", "--to", "0.19.2", "--all", cwd=tmp_path).out
    assert "Can go now (1)" in before
    name = "megatron.core.models.gpt.moe_module_specs.GroupedMLP"
    (tmp_path / "unpatch.lock").write_text(
        f'version = 1\n\n[[pin]]\nname = "{name}"\ndigest = {{ "0.17.1" = "x" }}\nwhere = ["a.py"]\n'
    )
    assert unpatch("upgrade", "--to", "0.19.2", "--all", cwd=tmp_path).out == before


def test_what_stands_for_a_commit_is_said_and_none_stands_for_one_before_all_releases(tmp_path: Path) -> None:
    lines = "megatron-core @ git+https://github.com/NVIDIA/Megatron-LM.git@{}\n"
    write_files(tmp_path, {"a.py": "import megatron.core\n", "requirements.txt": lines.format("71e418ea")})
    noted = unpatch("upgrade", cwd=tmp_path)
    assert "71e418ea (requirements.txt:1) is main of 2026-06-08, between 0.18.0 and 0.19.0: compared from" in noted.err
    write_files(tmp_path, {"requirements.txt": lines.format("25059d3b")})
    assert "older than 0.12.0: compared from 0.12.0." in unpatch("upgrade", cwd=tmp_path).err
    refused = unpatch("upgrade", "--from", "25059d3b", cwd=tmp_path)
    assert refused.code == 2
    assert "the oldest known; pass a clone that has it: CLONE@25059d3b" in refused.err


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [("0.19.2..0.19.2", "0.19.2", "0.19.2"), ("0.18..0.18", "0.18.0", "0.18.2"), ("v0.17..0.18.0", "0.17.0", "0.18.0")],
)
def test_a_range_of_one_release_or_of_one_number(given: str, first: str, last: str) -> None:
    labels, with_main = releases_of(given)
    assert (labels[0], labels[-1], with_main) == (first, last, False)
    if first != last:
        with pytest.raises(UsageError, match="write the older release first"):
            releases_of(f"{last}..{first}")
