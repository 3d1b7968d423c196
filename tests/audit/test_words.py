"""What the audit says, and which line of a repository it holds responsible: values in, text out."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcore_unpatch.audit.hook import HookOutcome
from mcore_unpatch.audit.origin import CodeOrigin
from mcore_unpatch.audit.report import AuditReport, Deviation, ModelHook, Rebinding, differences, join, load, this_rank
from mcore_unpatch.errors import UsageError

FORWARD, UTIL = "megatron.core.gpt.GPT.forward", "megatron.core.utils.f"
BY = CodeOrigin("verl.patch.forward", "/verl/patch.py", 3, "verl")


@pytest.mark.parametrize(
    ("deviation", "text"),
    [
        (Deviation("method", FORWARD, BY), f"{FORWARD} is rebound, by verl.patch.forward (/verl/patch.py:3)"),
        (ModelHook("", "forward hook", CodeOrigin("a")), "the model itself: forward hook, by a"),
        (ModelHook("x.y", "forward hook", CodeOrigin("a")), "x.y: forward hook, by a"),
        (Rebinding(UTIL, CodeOrigin("a"), "f returned", ("a.py:1 in f", "b")), f"{UTIL}: rebound at a.py:1 in f, to a"),
        (Rebinding(UTIL, CodeOrigin("a"), "f returned"), f"{UTIL}: rebound at f returned, to a"),
        (HookOutcome("called"), "The hook works: the processor was called."),
        (HookOutcome("ignores", "f", "Do it."), "The hook is lost: f ignores output_processor. Do it."),
    ],
)
def test_one_line(deviation: object, text: str) -> None:
    assert str(deviation) == text


def test_a_report() -> None:
    one, hook = Deviation("method", FORWARD, BY), ModelHook("", "forward hook", BY)
    clean = AuditReport()
    assert (str(clean), bool(clean)) == ("Megatron Core is what it says.", False)
    assert str(AuditReport("0.19.2", "rank1", notes=["a", "b"])).splitlines() == [
        "megatron-core 0.19.2 is what it says on rank1.",
        "note: a",
        "note: b",
    ]
    full = AuditReport("0.19.2", "", [one], [hook], [Rebinding(UTIL, BY, "x")])
    lines = str(full).splitlines()
    assert lines[0] == "1 deviation from megatron-core 0.19.2."
    assert lines[2::2] == ["Hooks on the model", "Rebindings, in order"]
    assert str(AuditReport(deviations=[one, one])).startswith("2 deviations from Megatron Core.")
    assert full


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    where = Deviation("submodule", FORWARD, BY, order=(BY, BY), of="a", where=("x", "y"))
    report = AuditReport(
        "0.19.2", "", [where], [ModelHook("p", "k", BY)], [Rebinding(UTIL, BY, "m", ("s", "t"))], ["n"]
    )
    file = report.save(tmp_path / "new" / "folder")
    assert (file.name, load(file)) == ("audit.process.json", report)
    data = json.loads(file.read_text())
    for broken in ({**data, "version": 2}, {**data, "more": 1}, [], {key: data[key] for key in ("version", "rank")}):
        file.write_text(json.dumps(broken))
        with pytest.raises(UsageError, match=r"is not a report of `unpatch audit`, version 1\."):
            load(file)
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        load(tmp_path / "nothing.json")


def test_ranks_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Deviation("method", FORWARD, BY)
    elsewhere = Deviation("method", FORWARD, CodeOrigin("verl.patch.forward", "/other/patch.py", 9, "verl"))
    reports = [
        ("a", AuditReport("0.19.2", deviations=[one, one])),
        ("b", AuditReport("0.18.2", deviations=[elsewhere])),  # the same code under another folder
        ("c", AuditReport()),
    ]
    assert differences(reports) == [
        (str(one), ["a", "b"], ["c"]),
        ("megatron-core 0.19.2 is installed", ["a"], ["b", "c"]),
        ("megatron-core 0.18.2 is installed", ["b"], ["a", "c"]),
    ]
    assert differences(reports[:1]) == []
    monkeypatch.setenv("RANK", "3")
    assert this_rank() == "rank3"
    monkeypatch.delenv("RANK")
    assert this_rank().count("-") >= 1


def finding(line: int, end: int = 0, target: str = FORWARD, path: str = "a.py") -> Any:
    return SimpleNamespace(target=target, path=path, line=line, end_line=end or line, rule="MCU101")


ROOT = Path("/repo")
INSIDE = CodeOrigin("a.mine", "/repo/a.py", 2, "a")
SCRIPT = CodeOrigin("mine", "<string>", 1, "")


@pytest.mark.parametrize(
    ("by", "findings", "stack", "text"),
    [
        (BY, [finding(8), finding(20, 22)], ["/repo/a.py:21 in f"], "made by a.py:20 (MCU101)"),
        (BY, [finding(8), finding(20, 22)], ["/repo/a.py:22 in f"], "made by a.py:20 (MCU101)"),
        (BY, [finding(8)], ["/repo/a.py:9 in f"], "no line of this repository: it comes from verl"),
        (BY, [finding(8)], ["/repo/a.pyx:8 in f"], "no line of this repository: it comes from verl"),
        (INSIDE, [finding(8), finding(20)], [], "made by a.py:8 (MCU101)"),
        (INSIDE, [], [], "made by a.py:2"),
        (INSIDE, [finding(8, target=UTIL)], [], "made by a.py:2"),
        (SCRIPT, [finding(8)], [], "made by a.py:8 (MCU101)"),
        (SCRIPT, [finding(8), finding(9)], [], "no line of this repository: it comes from <string>"),
        (CodeOrigin("x"), [], [], "no line of this repository: it comes from elsewhere"),
    ],
)
def test_the_line_that_made_a_patch(by: CodeOrigin, findings: list[Any], stack: list[str], text: str) -> None:
    rebindings = [Rebinding(FORWARD, by, "now", tuple(stack)), Rebinding(UTIL, by, "now", ("/repo/a.py:8 in f",))]
    reports = [
        AuditReport("0.19.2", rank, [Deviation("method", FORWARD, by)], [], rebindings) for rank in ("0", "0", "1")
    ]
    (live,), never_ran = join(reports, [*findings, finding(50, target="megatron.core.x")], ROOT)
    assert (str(live), live.ranks) == (text, ("0", "1"))
    assert [one.line for one in never_ran] == [50]
