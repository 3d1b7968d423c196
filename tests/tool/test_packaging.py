"""Three folders, one import package: nothing forgotten in the list, nothing leaked into site-packages."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import re
import sysconfig
import tomllib
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
import yaml
from builders import load_builder

from mcore_unpatch.codemods.codemod import Codemod
from mcore_unpatch.codemods.registry import own
from mcore_unpatch.findings.rules import rules

ROOT = Path(__file__).parents[2]
SOURCES = {"mcore_unpatch": "mcore_unpatch", "mcore_unpatch.codemods": "codemods", "mcore_unpatch.compat": "compat"}


def settings() -> dict[str, object]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def folders() -> dict[str, str]:
    """Package name -> folder, for every folder with an `__init__.py`."""
    found = {}
    for package, folder in SOURCES.items():
        for file in (ROOT / folder).rglob("__init__.py"):
            inner = file.parent.relative_to(ROOT / folder).parts
            found[".".join([package, *inner])] = "/".join([folder, *inner])
    return found


needs_checkout = pytest.mark.skipif(not (ROOT / "codemods").is_dir(), reason="compares with the folders of a checkout")


@needs_checkout
def test_the_package_list_is_the_folders() -> None:
    assert settings()["packages"] == sorted(folders())


@needs_checkout
def test_every_package_is_mapped_to_its_folder() -> None:
    mapped = settings()["package-dir"]
    assert isinstance(mapped, dict)
    for package, folder in folders().items():
        parent = next(p for p in (package, *parents(package)) if p in mapped)
        tail = package.removeprefix(parent).replace(".", "/")
        assert mapped[parent] + tail == folder


def parents(package: str) -> list[str]:
    parts = package.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]


@pytest.mark.parametrize("name", ["mcore_unpatch.codemods", "mcore_unpatch.compat", "mcore_unpatch.megatron.api"])
def test_subpackages_import_under_one_name(name: str) -> None:
    assert importlib.import_module(name).__name__ == name


def test_data_files_are_installed() -> None:
    from mcore_unpatch.findings.rules import rules
    from mcore_unpatch.megatron import api, known

    assert api.lookup("megatron.core.models.gpt.GPTModel")
    assert known.newest((0, 19)).called_with("megatron.core.models.gpt.gpt_model.GPTModel._postprocess")
    assert "MCU101" in rules()


def test_nothing_named_compat_or_codemods_leaks() -> None:
    site = Path(sysconfig.get_paths()["purelib"])
    assert not (site / "compat").exists()
    assert not (site / "codemods").exists()
    top_level = importlib.metadata.distribution("mcore-unpatch").read_text("top_level.txt")
    assert (top_level or "mcore_unpatch").split() == ["mcore_unpatch"]


@needs_checkout
def test_dependencies_are_the_promised_ones() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = {re.split("[<>]", requirement)[0] for requirement in project["dependencies"]}
    assert names == {"libcst", "packaging", "rich", "typer"}
    assert any(one.startswith("megatron-core>=0.18") for one in project["optional-dependencies"]["compat"])


@needs_checkout
def test_the_page_of_rules_is_up_to_date_and_has_the_anchor_of_every_link() -> None:
    """SARIF, `explain` and `explain --url` give these links."""
    text = (ROOT / "docs" / "rules.md").read_text()
    assert text == load_builder("build_rules_page").page()
    anchors = {heading.lower().replace(" ", "-") for heading in re.findall(r"(?m)^### ([\w -]+)$", text)}
    links = [rule.link for rule in rules().values() if rule.code.startswith("MCU")]
    assert links and {link.partition("/blob/main/docs/rules.md#")[2] for link in links} == anchors


@needs_checkout
def test_files_that_name_the_version_agree_and_are_well_formed() -> None:
    """`make release` makes a tag of this version; the citation is held to its schema."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert citation["version"] == version
    assert version in changelog
    assert re.search(r"^## \[Unreleased\]", changelog, re.MULTILINE) or f"## [{version}] - 20" in changelog
    pytest.importorskip("check_jsonschema")
    schemas = files("check_jsonschema") / "builtin_schemas" / "vendor"
    jsonschema.validate(citation, json.loads((schemas / "citation-file-format.json").read_text()))


@pytest.mark.parametrize("codemod", own(), ids=[codemod.name for codemod in own()])
def test_explain_prints_the_page_of_a_codemod(codemod: Codemod, capsys: pytest.CaptureFixture[str]) -> None:
    import typer

    from mcore_unpatch.commands.rules import explain

    with pytest.raises(typer.Exit) as ended:
        explain(codemod.name)
    assert ended.value.exit_code == 0
    assert capsys.readouterr().out.split() == codemod.page().removeprefix("# ").split()  # but for line ends
