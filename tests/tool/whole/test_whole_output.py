"""Everything that a command prints of a repository, compared with what it printed when somebody last read it.

`team.txt` is a repository with something for every part of a report, and is told in every style; `corpus.txt` has a
file for each way to patch or to use Megatron. After a change that is meant, `APPROVE=1 pytest tests/tool/whole` writes
the new output: read its diff before you commit it.
"""

import json
import os
import re
from functools import cache
from pathlib import Path

import pytest
from command import unpatch

HERE = Path(__file__).parent
STYLES = ("text", "concise", "markdown", "json", "sarif", "github", "gitlab", "html")
COMMANDS = {
    "team": {
        **{f"scan {style}": f"scan --output-format {style}" for style in STYLES},
        "scan statistics": "scan --statistics",
        "scan quiet": "scan --quiet",
        "scan verbose": "scan --verbose",
        "scan verbose html": "scan --verbose --output-format html --target-mcore 0.19.2",
        "scan selected": "scan --select MCU6 --ignore MCU608 --exclude team/value.py --verbose",
        "scan one file": "scan team/patches.py team/forward.py",
        "scan for one release": "scan --target-mcore 0.16.1 --verbose",
        "scan for one stack": "scan --stack 0.17.0",
        "rules": "rules && rules MCU6 && rules MCU501 && rules MCU60 && rules value-haed && rules nothing-like-it",
        "stacks": "stacks",
        "stacks json": "stacks --output-format json",
        "check": "check",
        "check quiet": "check --possible --quiet",
        "check with pins required": "check --require-pins --output-format concise",
        "pinned": (
            "pin --stack 0.18.2 --exclude team/broken.py --why speed --owner me --until 0.20"
            " && check --stack 0.18.2 --require-pins --exclude team/broken.py"
            " && check --target-mcore 0.19.2 --exclude team/broken.py"
            " && upgrade --from 0.18.2 --to 0.19.2 --exclude team/broken.py"
            " && pin --target-mcore 0.19.2 --exclude team/broken.py"
        ),
        "migrate": "migrate --check",
        "migrate diff": "migrate --diff --unsafe-fixes --target-mcore 0.19.2",
        "migrate annotated": "migrate --diff --annotate --target-mcore 0.19.2",
        "migrate json": "migrate --diff --unsafe-fixes --output-format json --target-mcore 0.19.2",
        "migrate written": "migrate --allow-no-vcs --target-mcore 0.19.2 && scan",
        "baseline": "check --write-baseline && check --exclude team/broken.py && check --possible --select MCU6",
        **{f"upgrade {style}": f"upgrade --to 0.19.2 --output-format {style}" for style in STYLES},
        "upgrade all": "upgrade --from 0.16.1 --to 0.19.2 --all --check",
        "upgrade matrix": "upgrade --matrix 0.16..0.19.2",
    },
    "corpus": {
        "scan": "scan --verbose --target-mcore 0.19",
        "upgrade 0.16.1": "upgrade --from 0.16.1 --to 0.19.2 --all",
        "upgrade 0.18.2": "upgrade --from 0.18.2 --to 0.19.2 --output-format concise",
        "upgrade 0.17.1": "upgrade --from 0.17.1 --to 0.18.2 --output-format json",
        "migrate": "migrate --diff --unsafe-fixes --target-mcore 0.19",
    },
}
CASES = [(repository, name) for repository, commands in COMMANDS.items() for name in commands]


@cache
def _files(repository: str) -> dict[str, str]:
    parts = re.split(r"(?m)^### (.+)\n", (HERE / f"{repository}.txt").read_text())[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _plain(said: str, style: str) -> str:
    """Without what is no news: the looks of a page, the day, the release of the tool, the texts of the rules."""
    if style == "html":
        said = re.sub(r"(?s)<style>.*</style>|<script>.*</script>|<meta http-equiv[^>]*>", "", said)
        return re.sub(r", \d+ \w+ 20\d\d:", ", TODAY:", said)
    if style == "sarif":
        data = json.loads(said)
        for run in data["runs"]:
            run["tool"]["driver"] = sorted(run["tool"]["driver"])
        return json.dumps(data, indent=1, ensure_ascii=False)
    return said


@pytest.mark.parametrize(("repository", "name"), CASES, ids=lambda word: word.replace(" ", "-"))
def test_it_is_what_somebody_read(tmp_path: Path, repository: str, name: str) -> None:
    top = tmp_path / repository
    for path, text in _files(repository).items():
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).write_text(text)
    said = ""
    for command in COMMANDS[repository][name].split(" && "):
        result = unpatch(
            *command.split(), *(() if command.startswith(("stacks", "rules")) else ("--jobs", "1")), cwd=top
        )
        style = command.partition("--output-format ")[2].partition(" ")[0]
        said += f"$ unpatch {command}\n{_plain(result.out, style)}\n--- stderr\n{result.err}\n--- exit {result.code}\n"
    written = [
        path
        for path in sorted(top.rglob("*"))
        if path.is_file() and str(path.relative_to(top)) not in _files(repository)
    ]
    said += "".join(f"--- {path.name}\n{path.read_text()}" for path in written)
    said = said.replace(str(top), "TOP")
    file = HERE / "said" / f"{repository}-{name.replace(' ', '-')}.txt"
    if "APPROVE" in os.environ:
        file.parent.mkdir(exist_ok=True)
        file.write_text(said)
    assert said.splitlines() == file.read_text().splitlines(), "if this is meant: APPROVE=1 pytest tests/tool/whole"
