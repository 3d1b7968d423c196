"""What stands in a pull request's way: the action, the workflows, the GitLab template and the hooks of pre-commit.

The forges' own schemas say whether the files are well formed. Steps are run by bash as a runner would run them, in a
real repository; of the forge itself only `gh` is a stand-in, which writes down what it was asked.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from repository import GIT, Repository

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not (ROOT / "action.yml").exists(), reason="the wheel has no action")

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"
BREAKS = """
    from megatron.core.models.gpt.fine_grained_callables import PostProcessNode
    PostProcessNode.forward_impl = print
"""


@pytest.mark.parametrize(
    ("file", "schema"),
    [
        ("action.yml", "github-actions"),
        ("integrations/github-gate.yml", "github-workflows"),
        ("integrations/github-megatron-main.yml", "github-workflows"),
        ("integrations/gitlab.yml", "gitlab-ci"),
    ],
)
def test_the_schema_of_the_forge(file: str, schema: str) -> None:
    pytest.importorskip("check_jsonschema")
    text = (files("check_jsonschema") / "builtin_schemas" / "vendor" / f"{schema}.json").read_text()
    jsonschema.validate(documents(file)[-1], json.loads(text))


def test_the_hooks_are_what_pre_commit_reads() -> None:
    clientlib = pytest.importorskip("pre_commit.clientlib")
    check, scan = clientlib.load_manifest(ROOT / ".pre-commit-hooks.yaml")
    assert (check["entry"], scan["entry"], scan["stages"]) == ("unpatch check", "unpatch scan", ["manual"])
    assert check["always_run"]  # links, deletions and odd endings would start nothing


@pytest.mark.slow
def test_the_gate_of_the_action(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repo")
    base = repository.commit({"old.py": PATCH})
    repository.commit({"new.py": PATCH})
    done = run(step("Check for patches"), repository.path, inputs={"base": base, "arguments": "--jobs 1"})
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("::error file=new.py,line=2")
    assert "old.py" not in done.stdout
    assert "new.py" in (tmp_path / "summary.md").read_text()


@pytest.mark.slow
def test_a_pull_request_that_changes_the_pin_is_commented_on_once(tmp_path: Path) -> None:
    repository = Repository(tmp_path / "repo")
    base = repository.commit({"patches.py": BREAKS, "requirements.txt": "megatron-core==0.18.2\n"})
    pull = {"base": base, "token": "secret"}
    comment = step("Say what a new Megatron pin does")

    repository.commit({"other.py": "x = 1\n"})
    assert run(comment, repository.path, inputs=pull).returncode == 0
    assert not (tmp_path / "asked").exists(), "nothing was pinned anew"

    repository.commit({"requirements.txt": "megatron-core==0.19.2\n"})
    for known, method in (("", "POST repos/o/r/issues/7/comments"), ("41", "PATCH repos/o/r/issues/comments/41")):
        done = run(comment, repository.path, inputs=pull, known_comment=known)
        assert done.returncode == 0, done.stderr
        asked = (tmp_path / "asked").read_text()
        assert f"--method {method}" in asked
        assert "megatron-core 0.18.2 to 0.19.2" in asked
        assert "patches.py:3" in asked
    assert repository.git("worktree", "list").count("\n") == 0, "the tree of the base is gone"


@pytest.mark.slow
def test_the_jobs_of_gitlab(tmp_path: Path) -> None:
    """The report is written whatever the gate says, and the job fails if it does."""
    repository = Repository(tmp_path / "repo")
    base = repository.commit({"a.py": "x = 1\n"})
    repository.commit({"a.py": PATCH})
    script = [line for line in documents("integrations/gitlab.yml")[1]["unpatch"]["script"] if "pip" not in line]
    text = "\n".join(script).replace("$[[ inputs.arguments ]]", "--jobs 1")
    done = bash(text, repository.path, {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base})
    assert done.returncode == 1, done.stderr
    (issue,) = json.loads((repository.path / "unpatch.json").read_text())
    assert (issue["check_name"], issue["location"]) == ("MCU601", {"path": "a.py", "lines": {"begin": 2}})


def test_the_scheduled_jobs_ask_for_an_exit_code() -> None:
    """Without `--check` a patch that breaks would leave the job green."""
    github = documents("integrations/github-megatron-main.yml")[0]["jobs"]["upgrade"]["steps"][-1]["run"]
    gitlab = documents("integrations/gitlab.yml")[1]["unpatch:megatron-main"]["script"][-1]
    assert all("unpatch upgrade --to" in text and "--check" in text for text in (github, gitlab))


class Yaml(yaml.SafeLoader):
    """YAML as the forges read it: `on` is a word, not a truth value."""


Yaml.yaml_implicit_resolvers = {
    letter: [(tag, form) for tag, form in forms if letter not in "oO" or not tag.endswith(":bool")]
    for letter, forms in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@cache
def documents(file: str) -> list[Any]:
    return list(yaml.load_all((ROOT / file).read_text(), Yaml))


def step(name: str) -> dict[str, Any]:
    """A step of the action."""
    (action,) = documents("action.yml")
    return next(each for each in action["runs"]["steps"] if each["name"] == name)


def run(
    step: Mapping[str, Any], folder: Path, inputs: dict[str, str], known_comment: str = ""
) -> subprocess.CompletedProcess[str]:
    """What a runner does with a step: fill in its environment, and hand its script to bash."""
    values = {f"inputs.{name}": text for name, text in inputs.items()}
    values |= {"github.repository": "o/r", "github.event.pull_request.number": "7"}
    env = {name: re.sub(r"\${{ (.*?) }}", lambda m: values[m[1]], text) for name, text in step["env"].items()}
    assert "${{" not in step["run"], "what a stranger may write never stands in a script itself"
    gh = folder.parent / "bin" / "gh"
    gh.parent.mkdir(exist_ok=True)
    gh.write_text(
        f'#!/bin/sh\necho "$@" >> {folder.parent}/asked\n[ "$2" = --paginate ] && echo "{known_comment}"; true\n'
    )
    gh.chmod(0o755)
    env |= {"GITHUB_STEP_SUMMARY": str(folder.parent / "summary.md"), "GITHUB_ACTION_PATH": str(ROOT)}
    return bash(step["run"], folder, env)


def bash(script: str, folder: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join((str(folder.parent / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]))
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, **GIT, "PATH": path, "MCORE_UNPATCH_NO_CACHE": "1", **env},
        capture_output=True,
        text=True,
        check=False,
    )
