"""How well `unpatch scan` does on public repositories that were read by hand.

`MCORE_UNPATCH_CHECKOUTS` names a folder with one checkout for each file in `labels/field`, `labels/held_out` and
`labels/unseen`, under the repository's own name and at the commit in the file. Without it nothing is measured.
docs/results.md has a row for each set, and nothing may be worse than it says. Some labels are measured
everywhere, on the wheel of a release that has their code.
"""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accuracy.scoring import SETS, VERDICTS, Label, Repository, Score, repositories, score, table
from command import unpatch
from downloads import unpacked

READ = {name: repositories(name) for name in SETS}
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/results.md").read_text()


def test_labels_are_whole() -> None:
    assert len(READ["field"]) >= 10
    assert len(READ["held_out"]) >= 3
    assert len(READ["unseen"]) >= 6
    everything = [repository for read in READ.values() for repository in read]
    assert len({repository.name for repository in everything}) == len(everything)
    for repository in everything:
        places = [(label.path, label.line, label.target) for label in repository.patches]
        assert len(places) == len(set(places))
        assert len(repository.commit) == 40
        for label in repository.patches:
            assert {label.verdict, *label.accept} <= set(VERDICTS)
            assert label.target.startswith("megatron.")
            assert label.why
            assert label.live


@pytest.mark.parametrize("name", SETS)
def test_accuracy(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    checkouts = os.environ.get("MCORE_UNPATCH_CHECKOUTS")
    if not checkouts:
        pytest.skip("MCORE_UNPATCH_CHECKOUTS names no folder with the checkouts")
    scores = []
    absent = []
    for repository in READ[name]:
        folder = Path(checkouts) / repository.name
        commit = _commit(folder)
        if commit == repository.commit:
            scores.append(score(repository, _findings(repository, folder)))
        else:
            absent.append(f"{repository.name}: {commit or 'no checkout'}, the labels are of {repository.commit}")
    total = sum(scores, Score("all"))
    with capsys.disabled():
        print("\n" + "\n".join([table(scores), *absent]))
        for title in ("missed", "false", "targets", "wrong_lives", "promises", "other", "weaker"):
            print("\n".join(["", f"{title}:", *(f"  {line}" for line in getattr(total, title))]))
    if not scores:
        pytest.skip("no checkout at the commit of its labels")
    assert total.promises == []
    assert len(total.missed) <= _may_miss(_promised(name))  # of a part of the repositories no more than of all
    if name == "field" and not absent:
        assert _promised(name) == _row(total)


RELEASED = [repository for repository in READ["field"] if repository.release]
# What is reported of a wheel where a reader sees no patch: data of a module that a setter of Megatron would set too.
NO_PATCH = {"skyrl-0.3.0": ["async_calls", "async_calls"]}


@pytest.mark.slow
@pytest.mark.parametrize("repository", RELEASED, ids=lambda repository: repository.release)
def test_accuracy_on_released_wheels(repository: Repository) -> None:
    """The same labels where no clone is at hand: in the wheel that has most of their code."""
    name, _, version = repository.release.rpartition("-")
    row = score(repository.of_wheel(), _findings(repository, unpacked(name, version)))
    assert (row.missed, row.targets, row.promises) == ([], [], [])
    assert [place.rpartition(".")[2] for place in row.false] == NO_PATCH.get(repository.release, [])
    assert len(row.wrong_lives) <= WRONG_LIVES.get(repository.release, 0)
    assert row.judged - row.right <= LESS_THAN_RIGHT.get(repository.release, 0)


# veRL sets a name that only newer releases read. The verdicts say less than a reader would, or another way.
WRONG_LIVES = {"verl-0.9.1": 4}
# A wheel names no Megatron: for ms-swift the branch for an older one is done, where its repository says delete.
LESS_THAN_RIGHT = {"verl-0.9.1": 4, "mbridge-0.15.1": 1, "megatron-bridge-0.6.2": 1, "ms-swift-4.5.2": 1}


def test_labels_of_wheels_are_most_of_their_labels() -> None:
    assert len(RELEASED) == 7
    assert sum(len(repository.of_wheel().patches) for repository in RELEASED) >= 85


def _promised(name: str, page: str = PAGE) -> str:
    """What the page says of a set: its last row, which is of the newest measurement."""
    rows = re.search(rf"(?m)^\|[^|]*\(`{name}`\) \|(.*)\n(?:\| the same after mending \|(.*))?", page)
    assert rows, name
    return (rows[2] or rows[1]).strip(" |")


def _may_miss(row: str) -> int:
    places, recall = re.findall(r"[\d.]+", row)[:2]
    return round(int(places) * (1 - float(recall) / 100))


def _row(total: Score) -> str:
    shares = [total.recall, total.precision, 1 - len(total.wrong_lives) / total.lives, total.right / total.judged]
    figures = [f"{share:.1%}".replace("%", " %").replace(".0 ", " ") for share in shares]
    return " | ".join([str(total.labels), *figures, str(len(total.promises))])


def test_the_page_has_no_wrong_promise_of_any_set() -> None:
    assert all(_promised(name).endswith(" | 0") for name in SETS)


def test_a_row_of_the_page_and_what_it_allows() -> None:
    row = score(read(label(3), label(9)), [finding(3, verdict="keep", live="all"), finding(30)])
    page = "| first run (`unseen`) | 9 | 1 % |\n| the same after mending | 2 | 50 % | 50 % | 100 % | 100 % | 0 |\n"
    assert _promised("unseen", page) == _row(row)
    assert _may_miss(_row(row)) == 1


def _commit(folder: Path) -> str:
    command = ["git", "-C", str(folder), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _findings(repository: Repository, folder: Path) -> list[dict[str, Any]]:
    arguments = ("scan", "--jobs=1", "--output-format", "json", "--target-mcore", repository.judged)
    report = unpatch(*arguments, cwd=folder).json
    return [*report["findings"], *report["done"]]


GPT = "megatron.core.models.gpt.gpt_model.GPTModel"


def finding(line: int, name: str = "forward", **more: Any) -> dict[str, Any]:
    """A finding as in a report."""
    plain = {"rule": "MCU101", "path": "a.py", "confidence": "certain", "in_test": False}
    return {**plain, "line": line, "target": f"{GPT}.{name}", **more}


def read(*labels: Label, **more: Any) -> Repository:
    """A repository with these labels."""
    return Repository("owner/name", "0" * 40, "0.19", labels, **more)


def label(line: int, verdict: str = "keep", name: str = "forward", **more: Any) -> Label:
    """A label on a line of a.py."""
    return Label("a.py", line, f"{GPT}.{name}", "all", verdict, "why", **more)


def test_a_patch_that_is_not_found_is_missed() -> None:
    row = score(read(label(3), label(9)), [finding(3)])
    assert (row.labels, len(row.missed), row.recall, row.precision) == (2, 1, 0.5, 1.0)


def test_a_finding_without_a_label_is_false() -> None:
    row = score(read(label(3)), [finding(3), finding(30)])
    assert (row.recall, row.precision, len(row.false)) == (1.0, 0.5, 1)


def test_tests_mocks_and_files_that_were_not_read_do_not_count() -> None:
    others = [finding(3, in_test=True), finding(3, rule="MCU901"), finding(3, path="b.py")]
    row = score(read(paths=("a.py",)), others)
    assert (row.findings, row.false) == (0, [])


def test_a_patch_file_is_one_label() -> None:
    change = {"shape": "patch-file", "path": "a.patch"}
    found = [finding(5, verdict="keep", **change), finding(50, "other", verdict="steps", **change)]
    row = score(read(replace(label(1), path="a.patch")), found)
    assert (row.labels, row.false, row.missed, row.targets, row.promises) == (1, [], [], [], [])
    row = score(read(replace(label(1), path="a.patch")), found[1:])
    assert (row.labels, len(row.promises)) == (1, 1)


def test_an_optional_label_counts_for_nothing() -> None:
    optional = read(label(3, optional=True))
    assert score(optional, []).labels == 0
    assert score(optional, [finding(3)]).false == []


def test_what_the_scan_showed_the_reader_does_not_raise_recall() -> None:
    row = score(read(label(3), label(9, found_by="scan")), [finding(9)])
    assert (row.labels, row.recall, row.precision) == (1, 0.0, 1.0)


def test_each_line_goes_to_its_own_label_first() -> None:
    row = score(read(label(3), label(4)), [finding(4), finding(3)])
    assert (row.missed, row.false) == ([], [])


def test_a_statement_over_several_lines() -> None:
    assert score(read(label(3)), [finding(5)]).missed == []
    assert score(read(label(3)), [finding(5, name="other")]).missed != []
    assert len(score(read(label(3)), [finding(3, name="other")]).targets) == 1


@pytest.mark.parametrize(
    ("said", "truth", "kind"),
    [
        ("keep", "keep", "right"),
        ("keep", "rewrite", "weaker"),
        ("steps", "delete", "weaker"),
        ("steps", "keep", "promises"),
        ("rewrite", "keep", "promises"),
        ("delete", "steps", "promises"),
        ("delete", "rewrite", "promises"),
        ("rewrite", "steps", "other"),
        ("rewrite", "delete", "other"),
    ],
)
def test_verdicts(said: str, truth: str, kind: str) -> None:
    row = score(read(label(3, truth)), [finding(3, verdict=said)])
    counted = {"right": row.right, **{name: len(getattr(row, name)) for name in ("weaker", "promises", "other")}}
    assert counted == {name: int(name == kind) for name in counted}


def test_a_verdict_that_is_accepted_is_right() -> None:
    assert score(read(label(3, "keep", accept=("steps",))), [finding(3, verdict="steps")]).right == 1


@pytest.mark.parametrize(
    ("said", "truth", "wrong"),
    [
        ("any", "all", 0),
        ("<=0.17.0", "<0.18", 0),
        (">=0.18.0", ">=0.18", 0),
        ("<=0.12.3 or >0.19.2", "<0.13", 1),
        ("none", "all", 1),
        ("none", ">0.19.2", 1),
    ],
)
def test_the_releases_a_patch_runs_on(said: str, truth: str, wrong: int) -> None:
    row = score(read(replace(label(3), live=truth)), [finding(3, live=said)])
    assert (row.lives, len(row.wrong_lives)) == (1, wrong)


def test_rows_add_up() -> None:
    row = score(read(label(3), label(9)), [finding(3), finding(30)])
    total = row + row
    assert (total.labels, len(total.missed), total.findings, total.recall) == (4, 2, 4, 0.5)
    assert table([row, row]).splitlines()[-1].startswith("all")
