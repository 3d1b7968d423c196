"""A scan says on one screen what was read, what it means, where it is most urgent, and what to run next."""

from dataclasses import replace
from pathlib import Path

import pytest
from checking import GPT, write_files
from command import CLEAN, ERROR, FINDINGS, unpatch

from mcore_unpatch.findings.finding import Assessment, Finding, Report
from mcore_unpatch.report import counts, pages, screen
from mcore_unpatch.report.text import concise, statistics
from mcore_unpatch.stacks.revision import Judged, Revision, Stack

ONE = Finding("MCU101", "rl/a.py", 3, 5, 3, f"{GPT}.forward", "class-attr", "replaces `GPTModel.forward`; why")
BREAKS = replace(
    ONE, line=9, effect="breaks", breaks=("lacks `x`: TypeError",), assessment=Assessment("rewrite", fix="unsafe")
)
SILENT = replace(ONE, line=8, effect="changes", breaks=("has no effect",), assessment=Assessment("steps"))
IN_TEST = replace(ONE, path="tests/a.py", in_test=True, assessment=Assessment("delete"))
PATCH_FILE = replace(ONE, path="docker/a.patch", shape="patch-file")
POSSIBLE = replace(ONE, line=12, confidence="possible", assessment=Assessment("steps"))
IDLE = replace(ONE, target="", shape="string-target", assessment=Assessment("delete"), rule="MCU001")
ALL = [ONE, BREAKS, SILENT, IN_TEST, PATCH_FILE, POSSIBLE, IDLE]


def report(*findings: Finding) -> Report:
    judged = [Judged((Stack(Revision("0.19", ((0, 19),)), why="named by --target-mcore"),))]
    return Report(str(Path.cwd()), 7, list(findings), judged=judged, fixes_known=True)


def text(*findings: Finding, named: tuple[str, ...] = ()) -> str:
    made = report(*findings)
    made.named = named
    return "\n".join("".join(part for part, _ in line) for line in screen.lines(made))


def test_what_an_old_stack_alone_breaks_comes_behind_what_is_of_today() -> None:
    old = replace(BREAKS, path="3.py", fails=("0.12.1", "0.12.3"), affected=("0.12.1", "0.12.3"))
    older = replace(BREAKS, path="4.py", fails=("0.12.1",), affected=("0.12.1",))
    new = replace(BREAKS, path="1.py", fails=("0.12.1", "0.19"), affected=("0.12.1", "0.19"))
    silent = replace(SILENT, path="2.py", affected=("0.19",))
    screened = text(replace(ONE, path="5.py"), older, old, silent, new)
    assert [line[2] for line in screened.splitlines() if ".py:" in line] == [*"12345"]


@pytest.mark.parametrize(
    ("why", "command"),
    [("named by --target-mcore", "unpatch pin --target-mcore 0.19"), ("stated in pyproject.toml", "unpatch pin")],
)
def test_the_release_to_pin_for_is_named_where_no_file_does(why: str, command: str) -> None:
    assert screen.pin_command([Judged((Stack(Revision("0.19", ((0, 19),)), why=why),))]) == command


def test_a_source_to_pin_for_is_named_as_the_user_did() -> None:
    stack = Stack(Revision("0.7.0", ((0, 7),), "the source in ../my megatron", given="../my megatron"), why="named")
    assert screen.pin_command([Judged((stack,))]) == "unpatch pin --target-mcore '../my megatron'"


def test_the_whole_screen() -> None:
    assert (
        text(*ALL)
        == """\
7 files read. Judged for megatron-core 0.19: named by --target-mcore.

3 patches:
    1  breaks on megatron-core 0.19
    1  changes silently there: no error, other results
    1  can be rewritten by migrate --unsafe-fixes
    1  by hand, step by step
    1  kept: no official way is known or needed

Where
  rl/a.py:9  MCU101
      `GPTModel.forward`: lacks `x`: TypeError (migrate --unsafe-fixes rewrites
      it)
  rl/a.py:8  MCU101
      `GPTModel.forward`: has no effect (by hand)
  rl/a.py:3  MCU101
      replaces `GPTModel.forward` (kept)

In tests: 1 (1 to delete)
Patch files: 1 (1 kept)
Possible, by a method's name alone: 1 (1 by hand)
Also: 1 unused ignore comment

Next: unpatch migrate --unsafe-fixes --diff
All:  unpatch scan --verbose"""
    )


def test_only_the_most_urgent_and_what_is_the_same_once() -> None:
    many = [replace(ONE, path=f"rl/{name}.py") for name in "abcdefg"]
    said = text(*many, BREAKS, replace(BREAKS, line=4))
    assert said.count("  MCU101\n") == screen.MOST
    assert "Most urgent\n  rl/a.py:4, 9  MCU101\n" in said


@pytest.mark.parametrize(
    ("finding", "command"),
    [
        (replace(ONE, assessment=Assessment("delete", fix="safe")), "unpatch migrate --diff 'my repo'"),
        (BREAKS, "unpatch migrate --unsafe-fixes --diff 'my repo'"),
        (ONE, "unpatch pin --target-mcore 0.19 'my repo'"),
        (replace(BREAKS, assessment=Assessment()), "unpatch scan --verbose 'my repo'"),
    ],
)
def test_the_next_command_is_for_what_was_named(finding: Finding, command: str) -> None:
    assert f"\nNext: {command}" in text(finding, named=("my repo",))


def test_a_long_path_keeps_the_width_and_what_raises_is_said() -> None:
    texts = ("has no effect on 0.18", "line 3: `x` is gone: ImportError")
    said = text(replace(BREAKS, path=f"{'deep/' * 14}a.py", breaks=texts, fails=("0.19.0", "0.18.0")))
    assert max(map(len, said.splitlines())) <= 80
    assert "\n      MCU101  line 3: `x` is gone: ImportError (migrate" in said
    assert "1  breaks on megatron-core 0.18.0 or 0.19.0\n" in said


def test_one_of_several_megatrons_is_offered_alone() -> None:
    made = report(ONE)
    made.judged = [Judged(tuple(Stack(Revision(f"0.{minor}", ((0, minor),))) for minor in (18, 19, 12)))]
    said = ["".join(part for part, _ in line) for line in screen.lines(made)]
    assert "One of 3 Megatrons alone: unpatch scan --stack 0.19" in said


def test_what_breaks_on_some_of_many_megatrons_is_not_said_of_all() -> None:
    minors = (19, 18, 17, 16, 12)
    old = replace(BREAKS, fails=("0.12", "0.16", "0.17"))
    for newest, words in ((("0.19",), "0.19, which you run, and on others"), ((), "at least one of the 5 Megatrons")):
        made = report(replace(BREAKS, fails=("0.17", "0.18", *newest)), replace(old, fails=(*old.fails, *newest)))
        made.judged = [Judged(tuple(Stack(Revision(f"0.{minor}", ((0, minor),))) for minor in minors))]
        said = " ".join(" ".join("".join(part for part, _ in line) for line in screen.lines(made)).split())
        assert f"2 break on {words}" in said


def test_the_numbers_add_up() -> None:
    safe, gone = (
        replace(ONE, assessment=Assessment("rewrite", fix="safe")),
        replace(ONE, assessment=Assessment("delete", fix="safe")),
    )
    told = counts.as_data([*ALL, safe, gone])
    assert {name: group["total"] for name, group in told.items()} == {
        "code": 5, "tests": 1, "patch_files": 1, "possible": 1, "other": 1,
    }  # fmt: skip
    assert told["code"] == {
        "total": 5, "breaks": 1, "may_break": 0, "changes": 1, "rewrite": 1, "rewrite_unsafe": 1, "delete": 1,
        "delete_unsafe": 0, "delete_by_hand": 0, "by_hand": 1, "kept": 1,
    }  # fmt: skip
    assert all(sum(group[fate] for fate in counts.FATES) == group["total"] for group in told.values())


def test_one_line_per_finding_or_per_rule() -> None:
    def said(lines: object) -> list[str]:
        return ["".join(part for part, _ in line) for line in lines]  # type: ignore[attr-defined]

    assert said(concise(report(ONE, IDLE)))[0] == "rl/a.py:3:5 MCU101 replaces `GPTModel.forward`; why"
    assert said(statistics(report(ONE, IDLE, BREAKS))) == [
        "    2  MCU101  gpt-forward",
        "    1  MCU001  unused-ignore",
    ]


def test_markdown_folds_tests_away_and_nothing_in_it_acts() -> None:
    page = pages.markdown(report(replace(ONE, message="a | `b|c` <img> @team *x*"), IN_TEST))
    assert "| `rl/a.py:3` | MCU101 | a \\| `b\\|c` \\<img\\> \\@team \\*x\\* | kept |\n" in page
    assert "<details open>\n<summary>In code: 1 (1 kept)</summary>\n" in page
    assert "<details>\n<summary>In tests: 1 (1 to delete)</summary>\n" in page


PATCH = "from megatron.core import utils\nutils.get_model_config = print\n"


def test_on_the_command_line(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.py": PATCH, "b.py": PATCH})
    one_screen = unpatch("scan", cwd=tmp_path)
    assert one_screen.out.startswith("2 files read. Judged for megatron-core ")
    for detailed in (["-v"], ["a.py", "b.py"]):
        out = unpatch("scan", *detailed, cwd=tmp_path).out
        assert out.startswith("a.py\n  2:1  MCU602")
        assert "\n    2  kept: no official way is known or needed\n" in out
    assert unpatch("scan", "--output-format", "json", cwd=tmp_path).json["counts"]["code"]["kept"] == 2
    lines = ["a.py:2:1 MCU602 replaces", "b.py:2:1 MCU602 replaces"]
    for command, code in (("scan", CLEAN), ("check", FINDINGS)):
        for options in (["-q"], ["--output-format", "concise"]):
            done = unpatch(command, *options, cwd=tmp_path)
            assert (done.code, [line[:24] for line in done.out.splitlines()]) == (code, lines)
    assert unpatch("check", "--statistics", cwd=tmp_path).out == "    2  MCU602  module-name\n"


def test_quiet_says_nothing_where_there_is_nothing_but_names_a_broken_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import megatron.core\nx = (\n")
    done = unpatch("scan", "-q", cwd=tmp_path)
    assert (done.code, done.out) == (ERROR, "")
    assert done.err.startswith("error: a.py: syntax error")


def test_what_is_kept_for_an_old_megatron_alone_is_told_apart() -> None:
    waits = replace(ONE, line=4, assessment=Assessment(waits_for="0.18"))
    assert "1  kept: the official way needs 0.18\n" in text(waits)
    assert "2  kept: for 1 the official way needs 0.18, for 1 none is known or needed" in text(waits, ONE)


def test_what_waits_for_a_later_release_and_breaks_is_told_so_by_scan_and_by_migrate(tmp_path: Path) -> None:
    lines = "from megatron.core import optimizer\ndef groups(a): return []\noptimizer._get_param_groups = groups\n"
    write_files(tmp_path, {"a.py": lines})
    scanned = unpatch("scan", "--target-mcore", "0.15.0", cwd=tmp_path)
    assert "1  kept: the official way needs 0.16" in scanned.out
    left = unpatch("migrate", "--check", "--target-mcore", "0.15.0", cwd=tmp_path)
    assert "passes: TypeError on megatron-core 0.12 to 0.15. An official way exists" in " ".join(left.out.split())
