"""A scan says on one screen what was read, what it means, where it is most urgent, and what to run next."""

from dataclasses import replace
from pathlib import Path

import pytest
from checking import GPT
from command import ERROR, unpatch

from mcore_unpatch.findings.finding import Assessment, Finding, Report
from mcore_unpatch.report import screen
from mcore_unpatch.report.text import concise
from mcore_unpatch.stacks.revision import Judged, Revision, Stack

ONE = Finding("MCU101", "rl/a.py", 3, 5, 3, f"{GPT}.forward", "class-attr", "replaces `GPTModel.forward`; why")
BREAKS = replace(
    ONE, line=9, effect="breaks", breaks=("lacks `x`: TypeError",), assessment=Assessment("rewrite", fix="unsafe")
)
IDLE = replace(ONE, target="", shape="string-target", assessment=Assessment("delete"), rule="MCU001")


def report(*findings: Finding) -> Report:
    judged = [Judged((Stack(Revision("0.19", ((0, 19),)), why="named by --target-mcore"),))]
    return Report(str(Path.cwd()), 7, list(findings), judged=judged, fixes_known=True)


def text(*findings: Finding, named: tuple[str, ...] = ()) -> str:
    made = report(*findings)
    made.named = named
    return "\n".join("".join(part for part, _ in line) for line in screen.lines(made))


@pytest.mark.parametrize(
    ("why", "command"),
    [("named by --target-mcore", "unpatch pin --target-mcore 0.19"), ("stated in pyproject.toml", "unpatch pin")],
)
def test_the_release_to_pin_for_is_named_where_no_file_does(why: str, command: str) -> None:
    assert screen.pin_command([Judged((Stack(Revision("0.19", ((0, 19),)), why=why),))]) == command


def test_a_source_to_pin_for_is_named_as_the_user_did() -> None:
    stack = Stack(Revision("0.7.0", ((0, 7),), "the source in ../my megatron", given="../my megatron"), why="named")
    assert screen.pin_command([Judged((stack,))]) == "unpatch pin --target-mcore '../my megatron'"


def test_only_the_most_urgent_and_what_is_the_same_once() -> None:
    many = [replace(ONE, path=f"rl/{name}.py") for name in "abcdefg"]
    said = text(*many, BREAKS, replace(BREAKS, line=4))
    assert said.count("  MCU101\n") == screen.MOST
    assert "Most urgent\n  rl/a.py:4, 9  MCU101\n" in said


def test_a_long_path_keeps_the_width_and_what_raises_is_said() -> None:
    texts = ("has no effect on 0.18", "line 3: `x` is gone: ImportError")
    said = text(replace(BREAKS, path=f"{'deep/' * 14}a.py", breaks=texts, fails=("0.19.0", "0.18.0")))
    assert max(map(len, said.splitlines())) <= 80
    assert "\n      MCU101  line 3: `x` is gone: ImportError (migrate" in said
    assert "1  breaks on megatron-core 0.18.0 or 0.19.0\n" in said


def test_what_breaks_on_some_of_many_megatrons_is_not_said_of_all() -> None:
    minors = (19, 18, 17, 16, 12)
    old = replace(BREAKS, fails=("0.12", "0.16", "0.17"))
    for newest, words in ((("0.19",), "0.19, which you run, and on others"), ((), "at least one of the 5 Megatrons")):
        made = report(replace(BREAKS, fails=("0.17", "0.18", *newest)), replace(old, fails=(*old.fails, *newest)))
        made.judged = [Judged(tuple(Stack(Revision(f"0.{minor}", ((0, minor),))) for minor in minors))]
        said = " ".join(" ".join("".join(part for part, _ in line) for line in screen.lines(made)).split())
        assert f"2 break on {words}" in said


def test_one_line_per_finding() -> None:
    def said(lines: object) -> list[str]:
        return ["".join(part for part, _ in line) for line in lines]  # type: ignore[attr-defined]

    assert said(concise(report(ONE, IDLE)))[0] == "rl/a.py:3:5 MCU101 replaces `GPTModel.forward`; why"


def test_quiet_says_nothing_where_there_is_nothing_but_names_a_broken_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import megatron.core\nx = (\n")
    done = unpatch("scan", "-q", cwd=tmp_path)
    assert (done.code, done.out) == (ERROR, "")
    assert done.err.startswith("error: a.py: syntax error")


def test_what_is_kept_for_an_old_megatron_alone_is_told_apart() -> None:
    waits = replace(ONE, line=4, assessment=Assessment(waits_for="0.18"))
    assert "1  kept: the official way needs 0.18\n" in text(waits)
    assert "2  kept: for 1 the official way needs 0.18, for 1 none is known or needed" in text(waits, ONE)
