"""docs/writing-a-codemod.md, done: the package is built, installed, tested and used, and says what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import CLEAN, FINDINGS, Result, importing, unpatch_forked
from limits import patience
from repository import Repository

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[3] / "docs" / "writing-a-codemod.md"
if not PAGE.is_file():
    pytest.skip("the page is part of a checkout", allow_module_level=True)
TEXT = PAGE.read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)```$", TEXT, re.DOTALL | re.MULTILINE))
SAID = dict(re.findall(r"^```console\n\$ unpatch (.*?)\n(.*?)```$", TEXT, re.DOTALL | re.MULTILINE))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package installed, as from an index."""
    package, site = tmp_path_factory.mktemp("acme-unpatch"), tmp_path_factory.mktemp("site")
    for name in ("acme_unpatch.py", "pyproject.toml", "tests/test_examples.py"):
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(FILES[name], encoding="utf-8")
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(site)]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(package)], check=True, timeout=patience(120))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(package / "tests")]
    subprocess.run(command, check=True, timeout=patience(120), env=environment(site), cwd=package)
    return site


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The repository of the page."""
    Repository(tmp_path).commit({"train.py": FILES["train.py"]})
    return tmp_path


def environment(site: Path) -> dict[str, str]:
    return {**os.environ, **importing(site), "COLUMNS": "80"}


def run(site: Path, project: Path, *arguments: str) -> Result:
    return unpatch_forked(*arguments, cwd=project, env=environment(site))


@pytest.mark.parametrize("command", SAID)
def test_the_commands_say_what_the_page_says(command: str, site: Path, project: Path) -> None:
    result = run(site, project, *command.split())
    assert result.code == CLEAN
    assert result.out == SAID[command]


def test_the_rule_is_one_of_all(site: Path, project: Path) -> None:
    assert "ACME  patches of acme_rl\n  ACME101  acme-log-probs: " in run(site, project, "rules").out
    explained = run(site, project, "explain", "ACME101").out
    assert "attach(model, LogProbs())" in explained
    assert "github.com" not in explained
    assert run(site, project, "explain", "acme").out.startswith("acme_rl\n")
    assert run(site, project, "check", "--select", "ACME1").code == FINDINGS
    assert run(site, project, "check", "--select", "ALL").code == FINDINGS
    assert run(site, project, "check", "--ignore", "ACME").code == CLEAN
    [sarif] = run(site, project, "scan", "--output-format", "sarif").json["runs"]
    assert {one["ruleId"] for one in sarif["results"]} == {"ACME101"}
    [rule] = [one for one in sarif["tool"]["driver"]["rules"] if one["id"] == "ACME101"]
    assert "helpUri" not in rule


def test_it_is_written_and_undone(site: Path, project: Path) -> None:
    assert run(site, project, "migrate", "--check").code == CLEAN
    assert run(site, project, "migrate", "--check", "--unsafe-fixes").code == FINDINGS
    assert run(site, project, "migrate", "--unsafe-fixes").code == CLEAN
    text = (project / "train.py").read_text()
    assert "attach(model, LogProbs())" in text
    assert run(site, project, "migrate", "--check", "--unsafe-fixes").code == CLEAN
    assert run(site, project, "undo").code == CLEAN
    assert (project / "train.py").read_text() == FILES["train.py"]


def test_a_comment_tells_it_to_stay(site: Path, project: Path) -> None:
    text = FILES["train.py"].replace("log_probs(model)", "log_probs(model)  # unpatch: ignore[ACME101]")
    (project / "train.py").write_text(text)
    assert run(site, project, "migrate", "--check", "--unsafe-fixes").code == CLEAN


def test_nothing_is_rewritten_below_a_patch_that_stays(site: Path, project: Path) -> None:
    patch = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = ours\n"
    (project / "other.py").write_text(patch)
    result = run(site, project, "migrate", "--diff", "--unsafe-fixes")
    assert result.out == ""
    assert "Nothing to migrate" in result.err
