"""A diff is relative to where the user stands, so that `unpatch migrate --diff src | git apply` works there."""

import subprocess
from pathlib import Path

import pytest
from sample_repository import ACTOR, FILES, MIGRATED, Sample
from sample_unpatch import Done, unpatch


def migrate(folder: Path, *options: str) -> Done:
    done = unpatch(folder, "migrate", *options)
    assert done.code == 0, done.err
    return done


@pytest.mark.parametrize(("stand", "named"), [("", "."), ("", "rl"), ("rl", "."), ("rl", "../rl"), ("rl/deep", ".")])
def test_git_takes_the_diff_where_it_was_made(sample: Sample, stand: str, named: str) -> None:
    done = migrate(sample.root / stand, "--diff", named)
    subprocess.run(["git", "apply"], cwd=sample.root / stand, input=done.out, check=True)
    changed = {name for name, data in sample.contents().items() if data != FILES[name]}
    assert changed == ({"rl/deep/trainer.py"} if stand == "rl/deep" else {"rl/actor.py", "rl/deep/trainer.py"})
    assert all(sample.contents()[name] == MIGRATED[name] for name in changed)
    assert b"note: " not in done.err


def test_a_diff_of_files_elsewhere_is_for_the_root_and_says_so(sample: Sample) -> None:
    done = migrate(sample.root / "rl/deep", "--diff", "..")
    note = f"note: The paths in this diff are relative to {sample.root}; apply it there."
    assert note in " ".join(done.err.decode().split())
    subprocess.run(["git", "apply"], cwd=sample.root, input=done.out, check=True)
    assert sample.contents()["rl/actor.py"] == MIGRATED["rl/actor.py"]


@pytest.mark.parametrize(("stand", "shown"), [("", "rl/actor.py"), ("rl", "actor.py"), ("rl/deep", "../actor.py")])
def test_the_table(sample: Sample, stand: str, shown: str) -> None:
    table = migrate(sample.root / stand, "--diff", str(sample.root)).err.decode()
    assert f"  {shown}" in table


def test_no_git_around(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_bytes(ACTOR)
    assert migrate(tmp_path, "--diff", "src").out.startswith(b"--- a/src/a.py\n+++ b/src/a.py\n")
