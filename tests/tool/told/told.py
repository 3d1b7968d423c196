"""What the commands tell of every patch that the tests have, as text that people review.

    python tests/tool/told/told.py        # after a change that is meant: writes the texts anew; read the diff

The patches are those of `tests/tool/fates/cases` and the golden inputs of the codemods, as one repository.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parents[1]
COMMANDS = {
    "scan": ("scan", "--output-format", "json", "."),
    "upgrade": ("upgrade", "--from", "0.16", "--to", "0.19", "--all", "."),
    "migrate": ("migrate", "--diff", "--unsafe-fixes", "--target-mcore", "0.19", "."),
}


def make_repository(folder: Path) -> None:
    """All of the patches in one git repository."""
    shutil.copytree(TESTS / "tool" / "fates" / "cases", folder / "cases", ignore=shutil.ignore_patterns("__pycache__"))
    outputs = shutil.ignore_patterns("*.out.*", "__pycache__", "ruff.toml")
    shutil.copytree(TESTS / "migrate" / "codemods" / "golden", folder / "golden", ignore=outputs)
    (folder / "pyproject.toml").write_text("")
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "all of them"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def as_lines(out: str) -> str:
    """A report in JSON with a line for each finding, and each step that is said the first time."""
    report: dict[str, Any] = json.loads(out)
    rows, said = [], set()
    for row in report["findings"]:
        flags = [name for name in ("temporary", "in_test") if row[name]]
        head = (row["rule"], row["shape"], row["seam"], row["confidence"], row["verdict"], row["live"], *flags)
        rows.append(f"{row['path']}:{row['line']}:{row['column']}-{row['end_line']} {' '.join(head)} {row['target']}")
        rows += [f"    {row['message']}", f"    {row['evidence']}"]
        rows += [f"    related: {one['role']} {one.get('path', '')}:{one['line']}" for one in row["related"]]
        for step in row["steps"]:
            rows += [f"    - {step}"] if step not in said else []
            said.add(step)
    return "\n".join([*rows, json.dumps(report["counts"], indent=1)]) + "\n"


def told(name: str, folder: Path) -> str:
    """What a command says in that repository."""
    from command import unpatch

    done = unpatch(*COMMANDS[name], cwd=folder)
    text = as_lines(done.out) if name == "scan" else done.out + done.err
    return text.replace(str(folder), "REPOSITORY")


if __name__ == "__main__":
    sys.path += [str(TESTS / "tool"), str(TESTS)]
    with tempfile.TemporaryDirectory() as temporary:
        make_repository(Path(temporary))
        for each in COMMANDS:
            (HERE / f"{each}.txt").write_text(told(each, Path(temporary)))
