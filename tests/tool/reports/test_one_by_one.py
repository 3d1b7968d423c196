"""Each fact of a finding, alone, in each report for people: where it is told, and that nothing is where it is not."""

from dataclasses import replace
from typing import Any

import pytest

from mcore_unpatch.findings.finding import Finding, OnStacks, Related
from mcore_unpatch.report import counts, lines, pages, screen, text
from mcore_unpatch.stacks.revision import Judged, Revision, Stack
from reports.one_finding import FILE, IDLE, ONE, PIN, SWITCH, made, report, said


@pytest.mark.parametrize(
    ("finding", "fate", "group", "subject"),
    [
        (made(), "kept", "code", "1 patch"),
        (made("steps"), "by_hand", "code", "1 patch"),
        (made("delete"), "delete_by_hand", "code", "1 patch"),
        (made("delete", fix="safe"), "delete", "code", "1 patch"),
        (made("delete", fix="unsafe"), "delete_unsafe", "code", "1 patch"),
        (made("rewrite", fix="safe"), "rewrite", "code", "1 patch"),
        (made("rewrite", fix="unsafe"), "rewrite_unsafe", "code", "1 patch"),
        (made("rewrite"), "kept", "code", "1 patch"),
        (replace(ONE, in_test=True), "kept", "tests", "1 in tests"),
        (replace(ONE, confidence="likely"), "kept", "code", "1 patch"),
        (replace(ONE, confidence="possible"), "kept", "possible", "1 possible one, by its name alone"),
        (replace(ONE, confidence="possible", in_test=True), "kept", "possible", "1 possible one, by its name alone"),
        (replace(made("rewrite", fix="safe"), confidence="possible"), "rewrite", "code", "1 patch"),
        (FILE, "kept", "patch_files", "1 patch file"),
        (replace(FILE, in_test=True), "kept", "patch_files", "1 patch file"),
        (PIN, "kept", "other", "1 pin that does not hold"),
        (IDLE, "kept", "other", "1 unused ignore comment"),
        (SWITCH, None, "other", "1 part of the gate switched off"),
        (replace(ONE, shape="downstream-use"), "kept", "code", "1 use of a known patch"),
        (replace(ONE, shape="downstream-definition"), "kept", "code", "1 use of a known patch"),
        (replace(ONE, shape="subclass"), "kept", "code", "1 model that keeps the hook"),
        (replace(ONE, shape="wrapper"), "kept", "code", "1 model that keeps the hook"),
        (replace(ONE, shape="offer"), "kept", "code", "1 line that can do without logits"),
        (replace(ONE, shape="offer", in_test=True), "kept", "tests", "1 in tests"),
    ],
)
def test_what_a_finding_is_counted_as(finding: Finding, fate: str | None, group: str, subject: str) -> None:
    assert fate is None or counts.fate_of(finding) == fate
    assert counts.group_of(finding) == group
    assert counts.subjects([finding]) == subject
    assert counts.subjects([finding, ONE]) != counts.subjects([finding])
    told = counts.as_data([finding])
    assert [(name, numbers["total"]) for name, numbers in told.items() if numbers["total"]] == [(group, 1)]
    assert fate is None or {name for name, many in told[group].items() if many} == {"total", fate}


def test_what_is_counted_in_words() -> None:
    assert counts.subjects([]) == ""
    every = [replace(ONE, shape="offer"), FILE, FILE, PIN, PIN, ONE, ONE]
    assert (
        counts.subjects(every)
        == "2 patches, 1 line that can do without logits, 2 patch files and 2 pins that do not hold"
    )


def fails(effect: str, *releases: str, **facts: Any) -> Finding:
    return replace(ONE, effect=effect, affected=releases, fails=releases if "break" in effect else (), **facts)


def test_what_is_urgent_comes_first() -> None:
    """Effects, then fates; the newest release first; tests last within one rank."""
    kinds = [("rewrite", "safe"), ("rewrite", "unsafe"), ("delete", "safe"), ("delete", "unsafe")]
    ordered = [
        fails("breaks", "0.19.1", "0.12.0"),
        fails("breaks", "0.19.0"),
        fails("breaks", "0.19.2", in_test=True),
        fails("may_break", "0.19.0"),
        fails("changes", "0.19.0"),
        *(made(verdict, fix=fix) for verdict, fix in kinds),
        *(made(verdict) for verdict in ("delete", "steps", "keep")),
        replace(ONE, in_test=True),
    ]
    keys = [counts.urgency(one) for one in ordered]
    assert keys == sorted(keys)
    assert len({str(key) for key in keys}) == len(keys)
    at = (0, 19, 0)
    changes, gone = counts.urgency(fails("changes", "0.19.0"), at), counts.urgency(made("rewrite", fix="safe"), at)
    assert changes < counts.urgency(fails("breaks", "0.18.0"), at) < gone
    assert counts.urgency(fails("breaks", "0.19.0"), at) < changes


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ([made("rewrite", fix="safe")], "can be rewritten by migrate"),
        ([made("rewrite", fix="unsafe")], "can be rewritten by migrate --unsafe-fixes"),
        ([made("delete", fix="safe")], "can be deleted by migrate"),
        ([made("delete")], "can be deleted by hand"),
        ([made("delete"), made("delete", fix="safe")], "can be deleted: 1 by migrate, 1 by hand"),
        ([made("steps")], "by hand, step by step"),
        ([made()], "kept: no official way is known or needed"),
        ([made(waits_for="0.18")], "kept: the official way needs 0.18"),
        ([made(waits_for="0.18"), made(waits_for="0.16"), made(waits_for="0.18")], "needs 0.16 or 0.18"),
        ([made(waits_for="0.18"), made(), made()], "for 1 the official way needs 0.18, for 2 none is known or needed"),
        ([fails("breaks", "0.19")], "breaks on megatron-core 0.19"),
        ([fails("breaks", "0.19"), fails("breaks", "0.18")], "break on megatron-core 0.18 or 0.19"),
        ([fails("breaks")], "breaks on megatron-core 0.19"),
        ([fails("changes", "0.19")], "changes silently there: no error, other results"),
        ([fails("changes", "0.19")] * 2, "change silently there: no error, other results"),
    ],
)
def test_the_rows_of_a_screen(findings: list[Finding], words: str) -> None:
    findings = [replace(one, breaks=("it is gone",)) if one.effect else one for one in findings]
    told = said(screen.lines(report(*findings)))
    rows = [line for line in told if line[:5].strip().isdigit()]
    assert any(line.startswith(f"{len(findings):>5}  ") and line.endswith(words) for line in rows), rows
    effect = findings[0].effect
    assert len(rows) == 1 + bool(effect)
    assert ("may break" in " ".join(told)) is (effect == "may_break")


@pytest.mark.parametrize(
    ("findings", "words"),
    [
        ([], ""),
        ([made("rewrite", fix="safe"), made("delete", fix="safe")], "2 for migrate"),
        ([made("rewrite", fix="unsafe"), made("delete", fix="unsafe")], "2 with --unsafe-fixes"),
        ([made("delete")], "1 to delete"),
        ([made("steps"), made()], "1 by hand, 1 kept"),
        ([fails("breaks", "0.19")], "1 kept; 1 breaks"),
        ([fails("breaks", "0.19"), fails("breaks", "0.19")], "2 kept; 2 break"),
        ([fails("may_break", "0.19"), fails("changes", "0.19")], "2 kept; 1 may break, 1 changes silently"),
        ([fails("changes", "0.19")] * 2, "2 kept; 2 change silently"),
    ],
)
def test_the_numbers_in_half_a_line(findings: list[Finding], words: str) -> None:
    assert screen.brief(findings) == words


@pytest.mark.parametrize("places", [0, 1, 2, 3])
def test_the_places_of_a_screen(places: int) -> None:
    """Those that say the same are one; `Most urgent` where some are left out."""
    found = [replace(ONE, line=line, path=f"{path}.py") for path in "ab" for line in (9, 3)]
    told = said(screen.lines(report(*found), places))
    named = [line for line in told if ".py:" in line]
    assert named == ["  a.py:3, 9  MCU101", "  b.py:3, 9  MCU101"][:places]
    assert [word for word in ("Most urgent", "Where") if word in told] == [[], ["Most urgent"], ["Where"], ["Where"]][
        places
    ]
    assert ("unpatch scan --verbose" in told[-1]) is bool(places)


@pytest.mark.parametrize(
    ("findings", "beside"),
    [
        ([ONE], []),
        ([ONE, replace(ONE, in_test=True)], ["In tests: 1 (1 kept)"]),
        ([FILE, FILE], ["Patch files: 2 (2 kept)"]),
        ([replace(ONE, confidence="possible")], ["Possible, by a method's name alone: 1 (1 kept)"]),
        ([ONE, IDLE, PIN], ["Also: 1 unused ignore comment and 1 pin that does not hold"]),
    ],
)
def test_what_is_beside_the_code(findings: list[Finding], beside: list[str]) -> None:
    told = said(screen.lines(report(*findings)))
    assert [line for line in told if line.startswith(("In ", "Patch ", "Possible", "Also"))] == beside
    code = ONE in findings
    assert ("1 patch:" in told) is ("Where" in told) is code
    assert told.count("") == (4 if code and beside else 3 if code else 2)


@pytest.mark.parametrize(
    ("findings", "new", "ending"),
    [
        ([ONE], False, "To keep it: `unpatch pin`, then `unpatch check --write-baseline` for what cannot be pinned"),
        (
            [ONE, ONE],
            True,
            "To keep them: `unpatch pin`, then `unpatch check --write-baseline` for what cannot be pinned",
        ),
        ([FILE], False, "To keep it: `unpatch check --write-baseline`, until it is gone"),
        ([FILE, FILE], True, "To keep them: `unpatch check --write-baseline`, until they are gone"),
        (
            [ONE, PIN],
            False,
            "Next: `unpatch upgrade --to 0.19` says what it means for each patch; once adapted, `unpatch pin`",
        ),
        ([SWITCH], True, "`--ignore MCU805` accepts what is switched off, once it is reviewed."),
        ([IDLE], False, "Found 1 unused ignore comment."),
    ],
)
def test_the_end_of_a_gate(findings: list[Finding], new: bool, ending: str) -> None:
    told = " ".join(" ".join(said(text.lines(report(*findings, only="new" if new else "")))).split())
    assert told.endswith(ending)
    head = "Scanned 7 files. Judged for megatron-core 0.19: stated in a.toml. Found"
    assert f"{head} {'new: ' * new}{counts.subjects(findings)}." in told
    assert ("MCU805`" in told or "--ignore MCU805" in told) is (SWITCH in findings)


def test_two_releases_are_none_to_upgrade_to() -> None:
    two = [Judged(tuple(Stack(Revision(f"0.{minor}", ((0, minor),))) for minor in (18, 19)))]
    assert "Next: `unpatch upgrade` says" in " ".join(said(text.lines(report(PIN, judged=two))))


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"read": 0}, "No Python file and no patch file to read in"),
        ({"read": 1}, "No patch of Megatron Core found; 1 file scanned."),
        ({"read": 2, "only": "new"}, "No new patch of Megatron Core found; 2 files scanned."),
    ],
)
@pytest.mark.parametrize("scan", [False, True])
def test_nothing_found(facts: dict[str, Any], words: str, scan: bool) -> None:
    told = said(text.lines(report(**facts, fixes_known=scan)))
    assert told[0].startswith(words)
    assert told[1:] == ["Next: unpatch upgrade, for what else is used of Megatron"] * (scan and facts["read"] > 0)
    page = pages.markdown(report(**facts))
    new = "new " if facts.get("only") else ""
    assert f"No {new}patch found; {lines.count(facts['read'], 'file')} scanned." in page
    assert "<details" not in page


@pytest.mark.parametrize(
    ("finding", "told"),
    [
        (ONE, ["  3:5  MCU101  ", "       3 | x", "       4 | y", "         = replaces it"]),
        (replace(ONE, source="1\n2\n3"), ["       5 | 3"]),
        (replace(ONE, source="1\n2\n3\n4"), ["       5 | 3", "         | ..."]),
        (made(evidence="Because."), ["         keep: Because."]),
        (replace(made("steps"), steps=("a", "b")), ["           1. a", "           2. b"]),
        (replace(made("steps"), replacement="the hook"), ["         -> the hook"]),
        (replace(made("steps", evidence="Use The Hook."), replacement="the hook"), ["         steps: Use The Hook."]),
        (replace(ONE, related=(Related(1, "backup"), Related(9, "restore"))), ["         also backup 1, restore 9"]),
        (made(on_stacks=(OnStacks(("0.18",), "breaks", "keep"),)), ["         on "]),
    ],
)
def test_the_lines_of_a_finding(finding: Finding, told: list[str]) -> None:
    shown = said(text._finding(finding))
    for line in told:
        assert any(one.startswith(line) if line.endswith(" ") else one == line for one in shown), (line, shown)
    for mark in ("| ...", "-> ", "1. ", "also ", "keep: ", "steps: "):
        assert any(mark in line for line in shown) is any(mark in line for line in told)


@pytest.mark.parametrize(
    ("finding", "words"),
    [
        (ONE, "[none]"),
        (replace(ONE, temporary=True), "[none]  temporary"),
        (replace(ONE, confidence="likely"), "[none]  likely"),
        (replace(ONE, in_test=True), "[none]  in a test"),
        (
            replace(ONE, temporary=True, confidence="likely", in_test=True, seam="hook"),
            "[hook]  temporary  likely  in a test",
        ),
    ],
)
def test_the_words_behind_a_name(finding: Finding, words: str) -> None:
    short = replace(finding, target="a.b")
    assert said(text._head(short)) == [f"  3:5  MCU101  a.b  {words}"]
    room = 80 - len(f"  3:5  MCU101    {words}")
    for more, rows in ((0, 1), (1, 2)):
        assert len(said(text._head(replace(finding, target="a" * (room + more))))) == rows


def test_a_class_that_is_not_known_is_not_named() -> None:
    assert said(text._head(replace(ONE, target="a.b.c", confidence="possible"))) == [
        "  3:5  MCU101  *.c  [none]  possible"
    ]


@pytest.mark.parametrize(
    ("finding", "many"),
    [
        (ONE, "2 patches"),
        (replace(ONE, shape="downstream-use"), "2 uses of known patches"),
        (replace(ONE, shape="subclass"), "2 models that keep the hook"),
        (replace(ONE, shape="offer"), "2 lines that can do without logits"),
        (replace(ONE, in_test=True), "2 in tests"),
        (FILE, "2 patch files"),
        (replace(ONE, confidence="possible"), "2 possible ones, by their name alone"),
        (IDLE, "2 unused ignore comments"),
        (PIN, "2 pins that do not hold"),
        (SWITCH, "2 parts of the gate switched off"),
    ],
)
def test_two_of_a_kind(finding: Finding, many: str) -> None:
    assert counts.subjects([finding, finding]) == many


@pytest.mark.parametrize(
    ("broken", "words"), [(3, "megatron-core 0.14 or 0.15 or 0.16"), (4, "0.17, which you run, and")]
)
def test_the_releases_that_break_are_named_or_counted(broken: int, words: str) -> None:
    names = [f"0.{minor}" for minor in range(14, 14 + broken)]
    stacks = tuple(Stack(Revision(name, (tuple(map(int, name.split("."))),))) for name in names)
    finding = replace(fails("breaks", *names), breaks=("it is gone",))
    assert f"1  breaks on {words}" in " ".join(said(screen.lines(report(finding, judged=[Judged(stacks)]))))
    assert screen.pin_command([]) == "unpatch pin"


@pytest.mark.parametrize(
    ("groups", "boxes"),
    [
        ([], []),
        (["code"], []),
        (["tests"], []),
        (["code", "tests"], [("code", 1, True), ("tests", 1, False)]),
        (["code", "code", "patch_files"], [("code", 2, True), ("patch_files", 1, True)]),
        (["tests", "possible"], [("tests", 1, True), ("possible", 1, True)]),
    ],
)
def test_the_boxes_of_a_page(groups: list[str], boxes: list[tuple[str, int, bool]]) -> None:
    """Where things stand is asked where there are several places; tests are folded away beside code alone."""
    cards = [pages.Card("kept", "t", "p", (), mark="breaks" * (place == "code"), group=place) for place in groups]
    told = list(pages._form(counts.FATES, counts.EFFECTS, pages._LOOKS, cards))
    where = [line for line in told if 'name="group"' in line]
    assert len(where) == len(boxes)
    for line, (name, number, checked) in zip(where, boxes, strict=True):
        assert f'value="{name}"' in line
        assert f"<b>{number}</b> in {name.replace('_', ' ')}<" in line
        assert (" checked" in line) is checked
    inside = groups.count("code") or len(groups)
    kinds = [line for line in told if 'name="kind"' in line]
    assert kinds == [
        f'<label><input type="checkbox" name="kind" value="kept" checked><b class="plain">{inside}</b> kept</label>'
    ] * bool(groups)
    marks = [line for line in told if 'name="only"' in line]
    assert ["checked" in line for line in marks] == [False] * ("code" in groups)
    assert all(f'<b class="bad">{groups.count("code")}</b> breaks' in line for line in marks)


def test_the_title_of_a_card() -> None:
    page = pages.html(report(ONE, IDLE))
    assert f"<h2>{ONE.target}</h2>" in page
    assert "<h2>MCU001</h2>" in page
