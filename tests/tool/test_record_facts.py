"""Facts of a repository are recorded, compared with those of another version of the tool, and drawn to be read."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from builders import load_builder

pytestmark = pytest.mark.slow
SAMPLE = Path(__file__).parents[2] / "examples" / "tiny_rl"


def test_recorded_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = load_builder("record_facts")

    def run(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["record_facts.py", *map(str, arguments)])
        return facts.main(), capsys.readouterr().out

    shutil.copytree(SAMPLE, tmp_path / "clones" / "tiny_rl")
    old, new = tmp_path / "old", tmp_path / "new"
    code, said = run("record", "--checkouts", tmp_path / "clones", "--to", old)
    assert code == 0, said
    known = json.loads((old / "tiny_rl.json").read_text())
    assert {"patch", "edit", "effect"} <= {fact["of"] for fact in known}
    patch = next(fact for fact in known if fact["of"] == "patch")
    changed = [{**fact, "releases": "none"} if fact is patch else fact for fact in known if fact["of"] != "remark"]
    new.mkdir()
    (new / "tiny_rl.json").write_text(json.dumps(changed))
    assert "changed 0" in run("compare", old, old)[1]
    said = run("compare", old, new, "--draw", 99)[1]
    assert "gone 0, new 0, changed 1" in said
    assert "releases: " + json.dumps(patch["releases"]) + ' -> "none"' in said
