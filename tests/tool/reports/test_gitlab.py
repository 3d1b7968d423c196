"""GitLab's code quality report."""

import json
from pathlib import Path

from checking import write_files
from command import ERROR, unpatch

from reports.sample import FILES

TWICE = "from megatron.core import utils\nutils.get_model_config = print\nutils.get_model_config = print\n"


def test_an_issue_per_finding_and_error(tmp_path: Path) -> None:
    write_files(tmp_path, {**FILES, "twice.py": TWICE})
    result = unpatch("check", "--output-format", "gitlab", cwd=tmp_path)
    issues = json.loads(result.out)
    assert result.code == ERROR
    assert all(issue["description"] and issue["severity"] in ("info", "minor", "major", "critical") for issue in issues)
    places = {(issue["check_name"], issue["location"]["path"], issue["location"]["lines"]["begin"]) for issue in issues}
    assert {("MCU101", "pkg/patches.py", 6), ("unreadable", "broken.py", 1)} <= places
    assert len({issue["fingerprint"] for issue in issues}) == len(issues), "GitLab shows one of those that share it"


def test_a_fingerprint_survives_moved_lines(tmp_path: Path) -> None:
    def marks(source: str) -> set[str]:
        write_files(tmp_path, {"a.py": source})
        return {
            issue["fingerprint"]
            for issue in json.loads(unpatch("check", "--output-format", "gitlab", cwd=tmp_path).out)
        }

    assert marks(TWICE) == marks(f"# a comment\n\n{TWICE}")
    first, second = sorted(marks(TWICE), key=len)
    assert second == f"{first}-2"
