"""Paths in text are relative to where the user stands, annotations to the repository's root, JSON to its own `root`."""

import json
from pathlib import Path
from urllib.parse import urljoin

import pytest
from command import unpatch
from repository import Repository

PATCH = "from megatron.core import utils\nutils.get_model_config = print\n"
BROKEN = b"from megatron.core import utils\nutils.get_model_config = (\n"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(tmp_path / "repo")
    made.commit({"src/pkg/patches.py": PATCH, "src/pkg/broken.py": BROKEN, "docs/readme.py": "x = 1\n"})
    return made


CASES = [
    # where the user stands, the path named, the path shown
    ("", ".", "src/pkg/patches.py"),
    ("", "src", "src/pkg/patches.py"),
    ("", "src/pkg/patches.py", "src/pkg/patches.py"),
    ("src", ".", "pkg/patches.py"),
    ("src/pkg", ".", "patches.py"),
    ("docs", "../src", "../src/pkg/patches.py"),
    ("..", "repo/src", "repo/src/pkg/patches.py"),
]


@pytest.mark.parametrize(("stand", "named", "shown"), CASES)
class TestPaths:
    def test_text(self, repository: Repository, stand: str, named: str, shown: str) -> None:
        result = unpatch("scan", "--verbose", named, cwd=repository.path / stand)
        assert result.out.splitlines()[0] == shown
        assert (repository.path / stand / shown).exists()
        if not named.endswith(".py"):
            assert result.err.startswith(f"error: {shown.replace('patches', 'broken')}: ")

    def test_annotations(self, repository: Repository, stand: str, named: str, shown: str) -> None:
        result = unpatch("check", named, "--output-format", "github", cwd=repository.path / stand)
        assert "::error file=src/pkg/patches.py,line=2," in result.out
        if not named.endswith(".py"):
            assert "::error file=src/pkg/broken.py::" in result.out

    def test_sarif(self, repository: Repository, stand: str, named: str, shown: str) -> None:
        (run,) = unpatch("scan", named, "--output-format", "sarif", cwd=repository.path / stand).json["runs"]
        place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        assert place["uri"] == "src/pkg/patches.py"
        base = run["originalUriBaseIds"][place["uriBaseId"]]["uri"]
        assert urljoin(base, place["uri"]) == (repository.path / "src/pkg/patches.py").as_uri()

    def test_json(self, repository: Repository, stand: str, named: str, shown: str) -> None:
        report = unpatch("scan", named, "--output-format", "json", cwd=repository.path / stand).json
        (finding,) = report["findings"]
        assert Path(report["root"], finding["path"]) == repository.path / "src/pkg/patches.py"
        assert not finding["path"].startswith("..")


def test_an_alert_is_the_same_wherever_the_scan_began(repository: Repository) -> None:
    logs = [unpatch("scan", "--output-format", "sarif", cwd=repository.path / at).json for at in ("", "src", "src/pkg")]
    prints = {log["runs"][0]["results"][0]["partialFingerprints"]["patch/v1"] for log in logs}
    assert len(prints) == 1
    assert json.dumps(prints.pop())
