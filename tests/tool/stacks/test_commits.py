"""The table of Megatron's commits: what it says of some that others pin, and how it is made from a clone."""

import importlib.util
import sys
from datetime import date
from pathlib import Path

import pytest
from repository import Repository

from mcore_unpatch.megatron import commits
from mcore_unpatch.megatron.commits import Commit
from mcore_unpatch.stacks.revision import of_reference

BUILDER = Path(__file__).parents[3] / "tools" / "build_commits.py"


@pytest.mark.parametrize(
    ("name", "words", "releases"),
    [
        ("71e418e", "main of 2026-06-08, between 0.18.0 and 0.19.0", ("0.18.0", "0.19.0")),
        ("818b2580da", "main of 2026-07-28, between 0.18.0 and 0.19.0", ("0.18.0", "0.19.0")),  # where 0.19 begins
        ("1dcf0daf", "dev of 2026-02-14, between 0.15.0 and 0.17.0", ("0.15.0", "0.17.0")),
        ("14346b65", "main of 2026-08-12, newer than 0.19.0", ("0.19.2", "0.20.0")),
        ("338af514", "core_r0.8.0 of 2024-07-23, older than 0.12.0", ("0.12.0",)),
        ("core_v0.12.0rc3", "core_r0.12.0 of 2025-04-14, between 0.11.0 and 0.12.0", ("0.12.0",)),
        ("ba7b5ebce12af60627a80985792a1449ce45f46c", "", ("0.18.0",)),
        ("core_r0.16.0", "on 2026-04-17, after 0.16.1", ("0.16.1",)),
        ("origin/core_r0.16.0", "on 2026-04-17, after 0.16.1", ("0.16.1",)),
        ("core_v0.15.0rc4", "main of 2025-09-11, between 0.14.0 and 0.15.0", ("0.14.0", "0.15.0")),
        ("core_r0.20.0", "by its name 0.20.0", ("0.20.0",)),
        ("deadbeef", "not among the commits up to 2026-08-22", ()),
        ("our-branch", "not a branch or tag that is known", ()),
    ],
)  # fmt: skip
def test_what_a_name_stands_for(name: str, words: str, releases: tuple[str, ...]) -> None:
    revision = of_reference(name)
    assert (revision.words, revision.releases) == (words, releases)


def test_a_fork_has_the_commits_of_upstream_and_its_own() -> None:
    assert of_reference("71e418ea", "we/Megatron-LM").releases == ("0.18.0", "0.19.0")
    assert of_reference("main", "we/Megatron-LM").releases == ()


def test_the_table_is_small_and_no_seven_digits_are_taken_for_another() -> None:
    table = commits.table()
    assert len(table.digits) > 10_000
    assert len(set(table.digits)) == len(table.digits)
    assert not commits.is_commit("1234567")
    assert not commits.is_commit("abc123")


def test_how_it_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = Repository(tmp_path / "clone")

    def commit(version: str, tag: str = "") -> str:
        major, minor, patch = version.split(".")
        info = {
            "megatron/core/package_info.py": f"MAJOR = {major}\nMINOR = {minor}\nPATCH = {patch}\nPRE_RELEASE = ''\n"
        }
        made = clone.commit(info)
        if tag:
            clone.git("tag", tag)
        return made[:8]

    first = commit("0.12.0")
    clone.git("checkout", "-q", "-b", "core_r0.12.0")
    released = commit("0.12.0", "core_v0.12.0")
    behind = commit("0.12.1")
    clone.git("checkout", "-q", "main")
    between = commit("0.13.0")
    clone.git("branch", "core_r0.13.0")
    newest = commit("0.14.0")
    clone.git("branch", "dev")
    spec = importlib.util.spec_from_file_location("build_commits", BUILDER)
    assert spec is not None and spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    monkeypatch.setattr(builder, "OUTPUT", tmp_path / "commits.bin")
    monkeypatch.setattr(sys, "argv", ["build_commits", str(clone.path)])
    builder.main()
    table = commits.read((tmp_path / "commits.bin").read_bytes())
    made = {digits: table.find(digits)[0] for digits in (first, released, behind, between, newest)}
    day = made[first].day
    assert abs((day - date.today()).days) <= 1
    assert made == {
        first: Commit(first, day, "main", "0.12.0", "", "0.12.0"),
        released: Commit(released, day, "core_r0.12.0", "0.12.0", "0.12.0", "0.12.0"),
        behind: Commit(behind, day, "core_r0.12.0", "0.12.1", "0.12.0", "0.12.1"),
        between: Commit(between, day, "main", "0.13.0", "0.12.0", "0.13.0"),
        newest: Commit(newest, day, "main", "0.14.0", "0.13.0", ""),
    }
    assert table.named("core_r0.12.0") == made[behind]
