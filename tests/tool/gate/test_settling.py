"""What a lock, a baseline and the settings of a change do, each alone, with none, one and many of everything."""

from pathlib import Path
from typing import Any

import pytest
from repository import Repository

from mcore_unpatch import pins
from mcore_unpatch.errors import UsageError
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.gate import baseline, compare, pinned, suppress, switches
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import parse_version
from mcore_unpatch.pins import Pin
from mcore_unpatch.repository.config import Config
from mcore_unpatch.repository.paths import relative

MODULE = "megatron.core.parallel_state"
RELEASE = known.newest(parse_version("0.18"))


def patch(name: str = "a", path: str = "p.py", **facts: Any) -> Finding:
    return Finding("MCU602", path, 1, 1, 1, f"megatron.core.{name}", facts.pop("shape", "module-attr"), "", **facts)


def lock(*made: Pin) -> pins.Lock:
    return pins.Lock({pin.name: pin for pin in made})


def pin(name: str = "parallel_state", **facts: Any) -> Pin:
    """Of a module as the release has it, patched in `p.py`."""
    name = f"megatron.core.{name}"
    digest = pins.pin(name, [RELEASE]) or Pin(name, {RELEASE.label: "of code"})
    return Pin(name, digest.digest, **{"where": ("p.py",), **facts})


def settled(findings: list[Finding], *made: Pin, whole: bool = False, required: bool = False) -> list[str]:
    text = lock(*made).text()
    left, notes = pinned.settle(findings, lock(*made), "L", text, [RELEASE], whole=whole, required=required)
    rows = text.splitlines()
    for one in left:
        assert one.shape != "pin" or one.path != "L" or rows[one.line - 1] == f'name = "{one.target}"'
    return [f"{one.rule} {one.path} {one.target.split('.')[-1]}" for one in left] + notes


OURS = patch("parallel_state")


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("required", [False, True])
@pytest.mark.parametrize(
    ("findings", "where", "left", "unpinned", "room"),
    [
        ([], ("p.py",), 0, 0, 1),
        ([OURS], ("p.py",), 0, 0, 0),
        ([OURS, OURS], ("p.py",), 1, 1, 0),
        ([OURS, OURS], ("p.py", "p.py"), 0, 0, 0),
        ([OURS], ("p.py", "p.py"), 0, 0, 1),
        ([OURS], ("q.py",), 1, 1, 1),
        ([OURS], (), 1, 1, 0),
        ([OURS], ("p.py", "q.py", "r.py"), 0, 0, 2),
        ([patch("parallel_state", shape="switch")], (), 1, 0, 0),
        ([patch("parallel_state", shape="offer"), OURS], ("p.py",), 1, 0, 0),
        ([patch("parallel_state", touches=("x",))], (), 1, 0, 0),
    ],
)
def test_patches_of_one_pinned_name(
    findings: list[Finding], where: tuple[str, ...], left: int, unpinned: int, room: int, whole: bool, required: bool
) -> None:
    told = settled(findings, pin(where=where), whole=whole, required=required)
    patched = any(one.shape == "module-attr" for one in findings)
    expected = ["MCU602 p.py parallel_state"] * left + ["MCU803 p.py parallel_state"] * (unpinned * required)
    expected += ["MCU804 L parallel_state"] * (whole and bool(where) and not patched)
    assert told[: len(expected)] == expected
    notes = told[len(expected) :]
    assert len(notes) == room * whole * patched
    assert all(note.endswith("where nothing patches it; run `unpatch pin`.") for note in notes)


@pytest.mark.parametrize(("where", "said"), [(("q.py",), "q.py, not here"), (("q.py", "r.py"), "q.py and 1 more, not")])
def test_a_name_that_is_pinned_in_another_place(where: tuple[str, ...], said: str) -> None:
    (one,), _ = pinned._unaccepted([OURS], lock(pin(where=where)))
    assert f"unpatch.lock pins it in {said}" in one.evidence
    assert one.evidence == one.evidence.strip()


def test_pins_of_several_names() -> None:
    assert settled([OURS, patch("b")], pin()) == ["MCU602 p.py b"]
    assert settled([OURS, patch("b")], pin(), required=True) == ["MCU602 p.py b", "MCU803 p.py b"]
    assert settled([], pin(), pin("utils"), whole=True) == ["MCU804 L parallel_state", "MCU804 L utils"]
    assert settled([OURS], pin(where=()), whole=True) == ["MCU602 p.py parallel_state"]
    assert settled([], pin(where=()), whole=True) == []
    assert settled([OURS], pin("gone_module"), pin()) == ["MCU801 L gone_module"]
    assert settled([OURS, patch("gone_module", "q.py")], pin("gone_module", where=("q.py",)), pin()) == [
        "MCU801 q.py gone_module"
    ]


@pytest.mark.parametrize(
    ("facts", "rules", "words"),
    [
        ({}, [], ""),
        ({"until": "0.19"}, [], ""),
        ({"until": "0.18.2"}, ["MCU802"], "has a pin until 0.18.2, and this is 0.18.2; remove it"),
        ({"until": "#12"}, [], ""),
    ],
)
def test_the_limits_of_a_pin(facts: dict[str, str], rules: list[str], words: str) -> None:
    told = list(pinned.problems(pin(**facts), [RELEASE]))
    assert [rule for rule, _ in told] == rules
    assert words in " ".join(said for _, said in told)


def test_what_is_noted_of_a_lock() -> None:
    def notes(*made: Pin, releases: Any = (RELEASE,)) -> list[str]:
        return list(pinned.notes(lock(*made), releases))

    assert notes() == notes(pin()) == notes(pin(where=())) == []
    other = known.newest(parse_version("0.19"))
    assert notes(releases=(other,)) == []
    for releases, named in (((other,), other.label), ((other, RELEASE), other.label)):
        (note,) = notes(pin(), releases=releases)
        assert f"was written for megatron-core {RELEASE.label}, not for {named}: each name" in note


@pytest.mark.parametrize("kind", ["nothing", "file", "folder", "link", "broken link"])
def test_a_lock_is_a_regular_file(kind: str, tmp_path: Path) -> None:
    file = tmp_path / pins.LOCK
    if kind == "folder":
        file.mkdir()
    elif "link" in kind:
        file.symlink_to(Path(__file__) if kind == "link" else "nowhere")
    elif kind == "file":
        file.write_text("")
    if kind in ("nothing", "file"):
        assert pinned.lock_file(tmp_path) == (file if kind == "file" else None)
    else:
        with pytest.raises(UsageError, match="is not a regular file"):
            pinned.lock_file(tmp_path)


FOLDER = Path("/repository")


@pytest.mark.parametrize(
    ("before", "now", "off"),
    [
        ({}, {}, []),
        ({}, {"exclude": ["a", "b"]}, ["`exclude`: 'a'", "`exclude`: 'b'"]),
        ({"exclude": ["a"]}, {"exclude": ["a", "b"]}, ["`exclude`: 'b'"]),
        ({"exclude": ["a"]}, {}, []),
        ({"exclude": ["a"]}, {"ignore": ["a"]}, ["`ignore`: 'a'"]),
        ({}, {"select": ["ALL"]}, []),
        ({}, {"select": ["MCU1"]}, ["`select`"]),
        ({"select": ["MCU1"]}, {"select": ["MCU6"]}, ["`select`"]),
        ({"select": ["MCU101"]}, {"select": ["MCU1"]}, []),
        ({"select": ["MCU1"]}, {}, []),
        ({"select": ["MCU1"]}, {"select": ["MCU1"], "jobs": 2}, []),
        ({}, {"baseline": "b"}, ["`baseline`: 'b'"]),
        ({"baseline": "a"}, {"baseline": "b"}, ["`baseline`: 'b'"]),
        ({"baseline": "b"}, {"baseline": "b", "jobs": 2}, []),
        ({"baseline": "b"}, {}, []),
        ({}, {"base": "b"}, []),
        ({"base": "a"}, {}, []),
        ({"base": "a"}, {"base": "a", "jobs": 2}, []),
        ({"base": "a"}, {"base": "b"}, ["the comparison with 'a', with `base`"]),
    ],
)
def test_a_setting_that_a_change_makes(before: dict[str, Any], now: dict[str, Any], off: list[str]) -> None:
    def told(folder: Path, top: Path = FOLDER) -> list[str]:
        gate = switches.Gate(top, (), Config(folder, now), ())
        return [one.message for one in gate._settings(Config(FOLDER, before))]

    found = told(FOLDER)
    assert len(found) == len(off)
    assert all(message.endswith(words) for message, words in zip(found, off, strict=True)), found
    assert told(FOLDER, top=FOLDER / "inner") == []  # of no file of the repository
    # In a file of another folder nothing of a list is the same, nor is a baseline.
    elsewhere = told(FOLDER / "inner")
    named = [*now.get("exclude", []), *now.get("ignore", []), *now.get("baseline", "")]
    assert sum(": " in one for one in elsewhere) == len(named)


OLD = {"until": "0.19", "where": ("p.py",)}


@pytest.mark.parametrize(
    ("old", "new", "there", "off"),
    [
        (None, {}, True, ["the gate for"]),
        (None, {}, False, ["the gate for"]),
        (None, {"where": ()}, True, []),
        (OLD, OLD, True, []),
        (OLD, {**OLD, "until": "0.20"}, True, ["the end of"]),
        (OLD, {**OLD, "until": ""}, True, ["the end of"]),
        (OLD, {**OLD, "until": ""}, False, []),
        ({}, OLD, True, []),
        (OLD, {**OLD, "where": ("p.py", "p.py")}, True, ["the gate for"]),
        (OLD, {**OLD, "where": ("q.py",)}, True, ["the gate for"]),
        ({**OLD, "where": ("p.py", "q.py")}, OLD, True, []),
        (OLD, None, True, ["the pin of"]),
        (OLD, None, False, []),
        (OLD, {**OLD, "where": ()}, True, ["the pin of"]),
        (OLD, {**OLD, "where": ()}, False, []),
    ],
)
@pytest.mark.parametrize("settled", [False, True])
def test_a_pin_that_a_change_makes(
    old: dict[str, Any] | None, new: dict[str, Any] | None, there: bool, off: list[str], settled: bool, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """`there`: the patch is; `settled`: it was before."""
    before, now = ({MODULE: pin(**one)} if one is not None else {} for one in (old, new))
    monkeypatch.setattr(compare, "pinned_at", lambda *_: before)
    if new is not None:
        (tmp_path / pins.LOCK).write_text(pins.Lock(now).text())
    gate = switches.Gate(tmp_path, (), Config(), ())
    found = list(gate._pins({MODULE} if settled else set(), {MODULE} if there else set()))
    told = [one.message.partition("switches off ")[2] for one in found]
    expected = [words for words in off if not (settled and words == "the gate for")]
    assert [line[: len(words)] for line, words in zip(told, expected, strict=True)] == expected


@pytest.mark.parametrize(
    ("accepts", "there", "others", "new", "surplus"),
    [
        ({}, ["p.py"], [], 1, 0),
        ({"p.py": 1}, ["p.py"], [], 0, 0),
        ({"p.py": 1}, ["p.py", "p.py"], [], 1, 0),
        ({"p.py": 2}, ["p.py"], [], 0, 1),
        ({"p.py": 2}, ["p.py"], ["p.py"], 0, 0),
        ({"p.py": 1}, ["p.py"], ["p.py"], 1, 0),
        ({"p.py": 1}, [], ["p.py", "p.py"], 0, 0),
        ({"q.py": 1}, ["p.py"], [], 1, 0),
        ({"gone.py": 1}, ["p.py"], [], 1, 1),
        ({"gone.py": 1, "p.py": 3}, [], [], 0, 2),
    ],
)
@pytest.mark.parametrize("inside", ["", "sub/"])
def test_a_baseline_takes_away(
    accepts: dict[str, int], there: list[str], others: list[str], new: int, surplus: int, inside: str, tmp_path: Path
) -> None:
    """`q.py` is there and was not scanned. Paths are relative to where the baseline stands."""
    (tmp_path / inside).mkdir(exist_ok=True)
    for name in ("p.py", "q.py"):
        (tmp_path / name).write_text("")
    file = tmp_path / inside / "b.json"
    counts = {relative(tmp_path / name, file.parent): {"MCU602": number} for name, number in accepts.items()}
    found, said = baseline.subtract(
        [patch(path=path) for path in there], counts, file, tmp_path, {"p.py"}, [patch(path=path) for path in others]
    )
    assert (len(found), len(said)) == (new, surplus)
    assert said == sorted(said)
    switch = patch(shape="switch")
    assert baseline.subtract([switch], counts, file, tmp_path, {"p.py"})[0] == [switch]


@pytest.mark.parametrize(
    ("codes", "used", "idle"),
    [
        ((), set(), "`ignore`"),
        ((), {"MCU601"}, None),
        (("MCU601",), set(), "`ignore[MCU601]`"),
        (("MCU601",), {"MCU601"}, None),
        (("MCU6",), {"MCU601"}, None),
        (("MCU6", "MCU1"), {"MCU601"}, "`ignore[MCU1]`"),
        (("MCU2", "MCU1"), set(), "`ignore[MCU2, MCU1]`"),
        (("MCU601", "MCU602"), {"MCU601", "MCU602"}, None),
    ],
)
@pytest.mark.parametrize("path", ["a.py", "tests/a.py"])
def test_a_comment_that_is_not_needed(codes: tuple[str, ...], used: set[str], idle: str | None, path: str) -> None:
    comment = suppress.Ignore(3, 7, codes, False, "x  # unpatch: ignore", used)
    found = suppress.unused({"none.py": [], path: [comment]})
    assert [(one.message, one.path, one.line, one.column, one.end_line, one.in_test, one.source) for one in found] == [
        (f"{idle} suppresses nothing here; remove it", path, 3, 7, 3, path != "a.py", comment.text)
    ] * (idle is not None)


@pytest.mark.parametrize(
    ("line", "codes"),
    [
        ("x  # unpatch: ignore", ()),
        ("x  #unpatch:ignore[MCU601]", ("MCU601",)),
        ("x  # unpatch: ignore[mcu601, MCU6 ,]", ("MCU601", "MCU6")),
        ("x  # because # unpatch: ignore[]", ()),
        ("    # unpatch: ignore", ()),
        ("x = '# unpatch: ignore'", None),
        ('x = """\n# unpatch: ignore\n"""', None),
        ("x = 'it\\'s'  # unpatch: ignore", ()),
        ("x  # unpatch ignore", None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_comment_that_is_read(line: str, codes: tuple[str, ...] | None, end: str) -> None:
    for above in (0, 1, 3):
        text = "y = 1\n" * above + f"{line}\nz = 1\n"
        found = suppress.comments(text.replace("\n", end).encode())
        assert [(one.line, one.column, one.codes, one.alone, one.text) for one in found] == [
            (above + 1, line.index("#") + 1, codes, line.startswith(" "), line)
        ] * (codes is not None)


@pytest.mark.parametrize("number", ["true", "0", "-1", "1.5", '"1"', "null", "[]"])
def test_a_number_that_a_baseline_cannot_have(number: str) -> None:
    text = '{"version": 1, "counts": {"a.py": {"MCU601": %s}}}'
    assert baseline.parse((text % "1").encode(), Path("b")) == {"a.py": {"MCU601": 1}}
    with pytest.raises(UsageError, match=r"the counts of a\.py must be positive numbers per rule"):
        baseline.parse((text % number).encode(), Path("b"))


@pytest.mark.parametrize(
    ("at", "line", "source"),
    [
        ("base", 3, "  base = 'x'"),
        ('"a.py"', 4, 'exclude = ["a.py"]'),
        ("select", 1, "[tool.unpatch]"),
        ("", 1, ""),
    ],
)
def test_the_line_that_switches_something_off(at: str, line: int, source: str, tmp_path: Path) -> None:
    gate = switches.Gate(tmp_path, (), Config(), ())
    (tmp_path / "p.toml").write_text('[tool.unpatch]\nbaseline = "b"\n  base = \'x\'\nexclude = ["a.py"]\n')
    found = gate._finding("p.toml", at, "it")
    assert (found.line, found.column, found.source) == (line, 1, source)
    missing = gate._finding("none.toml", at, "it")
    assert (missing.line, missing.source) == (1, "")


def test_a_base_that_is_not_there_contains_nothing(repository: Repository) -> None:
    first, second = repository.commit({"a.py": ""}), repository.commit({"a.py": "x = 1\n"})
    gate = switches.Gate(repository.path, (), Config(repository.path, {}), ())
    asked = [("nowhere", first), (first, first), (second, first), (first, second)]
    assert [gate._contains(*one) for one in asked] == [False, True, True, False]
    assert list(gate._moved_base()) == []
