"""A package whose codemods cannot be used is named, with the cause, and nothing is checked without it in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from checking import write_files
from command import CLEAN, ERROR, Result, importing, unpatch_forked

pytestmark = pytest.mark.slow
HEAD = """\
from mcore_unpatch.codemods.codemod import Codemod, Example, Match
from mcore_unpatch.findings.rules import Rule


class Bad(Codemod):
    name, title, covers = "bad", "bad", "nothing"
    families = {"BAD": "of a test"}
    words = (b"needle",)
    examples = (Example("BAD101", "needle()", "needle()"),)
    rules = (Rule("BAD101", "bad", "a needle", "It is bad."),)
"""

BROKEN = {
    "import acme_that_is_not_there\n": "ModuleNotFoundError: No module named 'acme_that_is_not_there'",
    "Bad = 3\n": "bad_plugin:Bad is no subclass of mcore_unpatch.codemods.codemod.Codemod",
    HEAD.replace('"BAD101", "bad"', '"MCU101", "bad"'): "its rule 'MCU101' needs a code of its own, such as ACME101",
    HEAD.replace('"BAD101", "bad"', '"bad", "bad"'): "its rule 'bad' needs a code of its own, such as ACME101",
    HEAD.replace('"BAD":', '"GOOD":'): "its rule BAD101 belongs to none of its families",
    HEAD.replace('"bad", "bad", "nothing"', '"verl", "bad", "nothing"'): "its name 'verl' is taken by this package",
    HEAD.replace('(b"needle",)', "()"): "Bad does not say its words",
    f'{HEAD}    safety = "safe"\n': "Bad says `safety`, which no codemod has",
    f'{HEAD}    level = "safe"\n': "Bad has the level 'safe', and not one of exact, rounding, behaviour",
    HEAD + "\n    def __init__(self):\n        raise KeyError(3)\n": "KeyError: 3",
}

FAILING = {
    "    def find(self, source):\n        raise KeyError(source.path)\n": "KeyError: 'a.py'",
    "    def find(self, source):\n        yield 1\n": "AttributeError: 'int' object has no attribute 'rule'",
    "    def find(self, source):\n        yield Match(source.tree.body[0], 'BAD9', '', '', '')\n": (
        "ValueError: it found 'BAD9', which is none of its rules"
    ),
    "    def find(self, source):\n        yield Match(source.tree.body[0], 'BAD101', 'x', 'm', 'i')\n"
    "    def fix(self, source, match):\n        raise RuntimeError('no\\nway')\n": "RuntimeError: no way",
}


def install(site: Path, text: str) -> None:
    """A package as pip leaves it."""
    entry = "[mcore_unpatch.codemods]\nbad = bad_plugin:Bad\n"
    metadata = "Metadata-Version: 2.1\nName: bad-plugin\nVersion: 2.0\n"
    folder = "bad_plugin-2.0.dist-info"
    write_files(site, {"bad_plugin.py": text, f"{folder}/entry_points.txt": entry, f"{folder}/METADATA": metadata})


def beside(site: Path) -> dict[str, str]:
    """A path with one folder more."""
    return importing(site)


def run(site: Path, *arguments: str) -> Result:
    write_files(site / "repo", {"a.py": "needle()\n"})
    return unpatch_forked(*arguments, cwd=site / "repo", env=beside(site))


@pytest.mark.parametrize("text", BROKEN, ids=BROKEN.values())
def test_what_cannot_be_loaded(text: str, tmp_path: Path) -> None:
    install(tmp_path, text)
    result = run(tmp_path, "scan")
    assert result.code == ERROR
    assert f"the codemods of bad-plugin 2.0 cannot be used: {BROKEN[text]}" in result.err


def test_every_command_that_uses_codemods_says_so(tmp_path: Path) -> None:
    install(tmp_path, next(iter(BROKEN)))
    for command in (["check"], ["rules"], ["explain", "MCU101"]):
        result = run(tmp_path, *command)
        assert (result.code, "the codemods of bad-plugin 2.0 cannot be used" in result.err) == (ERROR, True)
    assert run(tmp_path, "--help").code == CLEAN


@pytest.mark.parametrize("text", FAILING, ids=FAILING.values())
def test_what_fails_on_a_file(text: str, tmp_path: Path) -> None:
    install(tmp_path, HEAD + "\n" + text)
    result = run(tmp_path, "scan")
    assert result.code == ERROR
    assert f"the codemod 'bad' of bad-plugin 2.0 failed: {FAILING[text]}; report it there" in result.err
    (tmp_path / "repo" / "a.py").write_text("hay()\n")
    assert unpatch_forked("scan", cwd=tmp_path / "repo", env=beside(tmp_path)).code == CLEAN


def test_nothing_in_the_repository_is_loaded(tmp_path: Path) -> None:
    """Not even a package that lies where the command is run from, which Python puts on its path."""
    install(tmp_path / "repo", "raise SystemExit('loaded')\n")
    result = unpatch_forked("scan", cwd=tmp_path / "repo", env={"PYTHONPATH": ""})
    assert result.code == CLEAN
    assert "loaded" not in result.err


def test_a_code_that_another_package_has(tmp_path: Path) -> None:
    install(tmp_path, HEAD)
    other = {"entry_points.txt": "[mcore_unpatch.codemods]\nother = other_plugin:Other\n"}
    other["METADATA"] = "Metadata-Version: 2.1\nName: other-plugin\nVersion: 1.0\n"
    write_files(tmp_path, {f"other_plugin-1.0.dist-info/{name}": text for name, text in other.items()})
    write_files(
        tmp_path,
        {"other_plugin.py": HEAD.replace("Bad(", "Other(").replace('"bad", "bad", "nothing"', '"x", "x", "y"')},
    )
    result = run(tmp_path, "rules")
    assert result.code == ERROR
    assert "the codemods of other-plugin 1.0 cannot be used: its rule BAD101 is one of bad-plugin 2.0" in result.err


ANSWERING = """\
from mcore_unpatch.codemods.changes import Rewrite
from mcore_unpatch.codemods.codemod import Codemod, Example

BEFORE = "from megatron.core import utils\\nutils.get_model_config = ours\\n"
AFTER = "from megatron.core import utils\\nutils.OURS = 1\\n"


class Bad(Codemod):
    name, title, covers = "bad", "bad", "one function"
    answers = ("MCU602",)
    level = "exact"
    examples = (Example("MCU602", BEFORE, "from acme import register\\n\\nregister(ours)\\n"),)

    def fix(self, source, match):
        if match.target.endswith(".get_model_config"):
            yield Rewrite(match.node, "register(ours)")
"""


def test_findings_of_the_scanner_are_answered(tmp_path: Path) -> None:
    """A codemod without rules of its own has changes for those of the scanner."""
    install(tmp_path, ANSWERING)
    text = "from megatron.core import utils\n\nutils.get_model_config = ours  # kept\nutils.log_single_rank = ours\n"
    write_files(tmp_path / "repo", {"a.py": text})
    environment = beside(tmp_path)
    report = unpatch_forked("scan", "--output-format", "json", cwd=tmp_path / "repo", env=environment).json
    assert [(one["line"], one["fix"]) for one in report["findings"]] == [(3, "safe"), (4, None)]
    done = unpatch_forked("migrate", "--allow-no-vcs", cwd=tmp_path / "repo", env=environment)
    assert done.code == CLEAN
    expected = text.replace("utils.get_model_config = ours", "register(ours)")
    assert (tmp_path / "repo" / "a.py").read_text() == expected
