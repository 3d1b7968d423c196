"""A pin beside a release: what is said of each kind of change, and of each way that a lock can be wrong."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from command import CLEAN, ERROR, unpatch

from mcore_unpatch import pins
from mcore_unpatch.commands import doctor
from mcore_unpatch.errors import UsageError
from mcore_unpatch.gate import pinned as gate
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import parse_version

FORWARD = "megatron.core.models.gpt.gpt_model.GPTModel.forward"


def release(version: str) -> Any:
    return known.newest(parse_version(version))


def pinned(name: str, *versions: str, patched: bool = True) -> pins.Pin:
    made = pins.pin(name, [release(version) for version in versions], patched)
    assert made is not None
    return made


@pytest.mark.parametrize(
    ("name", "version", "other", "said"),
    [
        (FORWARD, "0.18", "0.18", None),
        (FORWARD, "0.17", "0.18", "changed its signature from `"),
        ("megatron.core.transformer.moe.router.save_to_aux_losses_tracker", "0.17", "0.19", "was removed; it is now"),
        ("megatron.core.utils.get_thd_batch_on_this_cp_rank", "0.17", "0.18", "was removed"),
        ("megatron.core.parallel_state", "0.17", "0.19", None),
    ],
)
def test_one_pin(name: str, version: str, other: str, said: str | None) -> None:
    told = pins.difference(pinned(name, version), release(other))
    assert told == said or (said is not None and str(told).startswith(said)), told


COORDINATOR = "megatron.core.inference.data_parallel_inference_coordinator.coordinator.DataParallelInferenceCoordinator"


def test_what_a_later_release_defines_elsewhere_is_pinned_where_it_is() -> None:
    """By the name that the release has; an import of it on a later release finds the same."""
    here = COORDINATOR.replace(".coordinator", "")
    one = pinned(f"{COORDINATOR}.detokenize", "0.16")
    assert (one.kind, one.before) == ("function", f"{here}.detokenize")
    assert pins.difference(one, release("0.16")) is None
    assert pins.parse(pins.Lock({one.name: one}).text().encode(), Path("lock")).pins == {one.name: one}
    assert pinned(f"{COORDINATOR}.detokenize", "0.19").before == ""
    both = pinned(f"{COORDINATOR}.detokenize", "0.19", "0.16")
    assert both.before == one.before
    assert pins.ABSENT not in both.releases.values()
    assert pins.pin(f"{COORDINATOR}.nowhere", [release("0.16")], False) is None


def test_a_patch_of_what_moved_is_pinned_and_told_to_be_there(tmp_path: Path) -> None:
    module, _, name = COORDINATOR.rpartition(".")
    text = f"from {module.removesuffix('.coordinator')} import {name}\n{name}.detokenize = lambda self: None\n"
    (tmp_path / "a.py").write_text(text)
    on = ("--target-mcore", "0.16.0")
    said = unpatch("scan", ".", "--verbose", *on, cwd=tmp_path).out
    assert "`unpatch pin` tells when it changes" in " ".join(said.split())
    assert "has no" not in said
    assert unpatch("pin", *on, cwd=tmp_path).code == CLEAN
    assert unpatch("check", *on, cwd=tmp_path).code == CLEAN


def test_the_release_that_a_pin_is_held_to() -> None:
    several = pinned(FORWARD, "0.16", "0.18")
    low, high = several.releases
    asked = ("0.15.0", "0.16.9", "0.17.1", "0.18.9", "0.19.2", "not a version")
    assert [pins.held_to(several, label) for label in asked] == [low, low, low, high, high, high]


def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> Callable[[str], bool | None]:
    (tmp_path / "probes_here.py").write_text(body)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda until: pins.Pin(FORWARD, until=until).is_mended()


def test_probes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "def yes():\n    return 1\n\ndef no():\n    return 0\n\ndef bad():\n    raise OSError('x')\n"
    ask = probe(tmp_path, monkeypatch, body)
    asked = ("probes_here:yes", "probes_here:no", "0.20", "probes_here", "probes here:yes", "probes_here:a b", "")
    assert [ask(until) for until in asked] == [True, False, None, None, None, None, None]
    with pytest.raises(pins.PinError, match=r"the probe probes_here:bad of .* failed: OSError: x; mend it"):
        ask("probes_here:bad")


def test_a_lock_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        pins.load(tmp_path / "unpatch.lock")
    with pytest.raises(UsageError, match=r"No unpatch\.lock found above .*; write one with `unpatch pin`"):
        pins._lock_above(str(tmp_path / "a.py"))
    (tmp_path / "inner").mkdir()
    (tmp_path / "unpatch.lock").write_text("version = 1\n")
    assert pins._lock_above(str(tmp_path / "inner" / "a.py")) == tmp_path / "unpatch.lock"


def test_what_pin_says(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    nothing = unpatch("pin", cwd=tmp_path)
    assert (nothing.code, "There is nothing to pin" in nothing.err) == (CLEAN, True)
    assert not (tmp_path / "unpatch.lock").exists()
    unknown = unpatch("pin", "megatron.core.nothing", "--target-mcore", "0.18", cwd=tmp_path)
    assert (unknown.code, "has no megatron.core.nothing; nothing was pinned." in unknown.err) == (ERROR, True)
    no_release = unpatch("pin", FORWARD, cwd=tmp_path)
    assert no_release.code == ERROR
    assert "pass the release in use with --target-mcore" in no_release.err
    assert unpatch("pin", FORWARD, "--target-mcore", "0.18", "--why", "our loss", cwd=tmp_path).code == CLEAN
    lock = tmp_path / "unpatch.lock"
    assert pins.load(lock).pins[FORWARD].why == "our loss"
    lock.write_text(lock.read_text() + 'depends_on = ["megatron.core.gone", "megatron.core.parallel_state"]\n')
    again = unpatch("pin", FORWARD, cwd=tmp_path)  # the release of the lock
    assert "depends_on names megatron.core.gone, which megatron-core 0.18.2 does not define." in again.err
    assert list(pins.load(lock).pins) == [FORWARD, "megatron.core.parallel_state"]


def test_the_doctor_s_last_line() -> None:
    def told(*lines: doctor.Line) -> tuple[str, str]:
        last = doctor._replacements(list(lines))
        return last.state, last.said

    plan = doctor.Line("GPTModel.build_schedule_plan", "takes it")
    works = "works: veRL, NeMo RL, SkyRL, slime, miles, ROLL, AReaL"
    assert told(plan) == ("ok", works)
    assert told() == ("ok", f"{works}; not in a schedule plan")
    wrong = [doctor.Line(name, "x", "wrong") for name in ("triton", "Python", "something else")]
    assert told(plan, *wrong) == ("wrong", "will not work: Python, triton")


def test_the_doctor_on_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {"torch": "2.5.1", "triton": "3.2.0"}
    monkeypatch.setattr(doctor, "_version", versions.get)
    old, enough = doctor._torch()
    assert (old.state, old.remedy) == ("wrong", "the replacements need torch 2.6 or newer")
    assert (enough.state, enough.said) == ("ok", "3.2.0")
    versions.clear()
    assert [line.said for line in doctor._torch()] == ["not installed"] * 2
    monkeypatch.setattr(doctor.sys, "version_info", (3, 11, 9))
    assert (doctor._python().state, doctor._python().said) == ("wrong", "3.11.9")


def test_the_doctor_s_line_for_each_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    def hooks(version: str | None) -> list[tuple[str, str]]:
        monkeypatch.setattr(doctor, "installed_model", lambda: release(version) if version else None)
        return [(line.about, line.state) for line in doctor._hooks()]

    assert hooks("0.19") == [
        ("GPTModel.forward", "ok"),
        ("GPTModel.build_schedule_plan", "ok"),
        ("HybridModel.forward", "missing"),
    ]
    assert hooks("0.17")[0] == ("GPTModel.forward", "wrong")
    assert hooks("0.13")[2] == ("HybridModel.forward", "missing")
    assert hooks(None) == []
    assert json.dumps(hooks("0.18"))


@pytest.mark.parametrize(
    ("days", "overdue", "noted"),
    [
        (-1, True, False),
        (0, False, True),
        (1, False, True),
        (gate.NOTICE, False, True),
        (gate.NOTICE + 1, False, False),
    ],
)
def test_a_review_is_due_on_its_day_and_overdue_after_it(days: int, overdue: bool, noted: bool) -> None:
    today, one = date(2030, 3, 1), pinned(FORWARD, "0.18")
    one = replace(one, review_by=(today + timedelta(days=days)).isoformat(), owner="Ada")
    problems = [rule for rule, _ in gate.problems(one, [release("0.18")], today)]
    assert problems == [gate.OVERDUE] * overdue
    notes = list(gate.notes(pins.Lock({one.name: one}), [release("0.18")], today))
    assert [f"by {one.review_by} (Ada), in {days} days" in note for note in notes if "review" in note] == [True] * noted


def test_a_guard_knows_the_file_that_it_stands_in(tmp_path: Path) -> None:
    """The lock is looked for from there, whoever calls that file."""
    names: dict[str, Any] = {"pins": pins}
    source = "made = pins.guard('a.b')\ndef install():\n    return pins.guard('a.b')\n"
    exec(compile(source, str(tmp_path / "patches.py"), "exec"), names)
    assert names["made"].caller == names["install"]().caller == str(tmp_path / "patches.py")
