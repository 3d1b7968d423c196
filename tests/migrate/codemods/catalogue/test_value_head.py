"""Value heads in a repository of several files, and what scan says."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning import Result, migrate

from mcore_unpatch.editing.edits import Options
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

CRITIC = b"""from megatron.core.models.gpt.gpt_model import GPTModel

from heads import LastLayer


def critic(model: GPTModel, config):
    model.output_layer = LastLayer(config.hidden_size, 1)
"""
RULE = "MCU501"


def beside(text: str, path: str = "pkg/other.py") -> Result:
    """The critic's file migrated, with another one in the repository."""
    return migrate({"pkg/critic.py": CRITIC, path: text.encode()}, Options(unsafe_fixes=True))


def said(result: Result) -> str:
    return "\n".join(remark.text for remark in result.plan.remarks)


def test_other_files_that_read_or_name_the_layer_stay_as_they_are() -> None:
    reads = "def reset(critic):\n    return critic.output_layer.weight\n\n\nNAMES = ['output_layer.weight']\n"
    bridge = "from megatron.bridge import AutoBridge\n\ndef save(critic, path):\n    AutoBridge().save(critic, path)\n"
    for text in (reads, bridge):
        result = beside(text)
        assert result.changed == {"pkg/critic.py"}
        assert b"add_value_head(model, LastLayer(config.hidden_size, 1))" in result.files["pkg/critic.py"]
        assert not said(result)


def test_setattr_has_steps() -> None:
    text = CRITIC.replace(b"model.output_layer = LastLayer(", b"setattr(model, 'output_layer', LastLayer(") + b")\n"
    result = migrate({"pkg/critic.py": text.replace(b")\n)", b"))")}, Options(unsafe_fixes=True))
    assert result.changed == set()
    assert "Not rewritten: it is not a plain assignment." in said(result)


def test_scan_says_that_migrate_does_it(tmp_path: Path) -> None:
    (tmp_path / "critic.py").write_bytes(CRITIC)
    (finding,) = scan([tmp_path], ScanOptions(fixes=True)).findings
    assert (finding.rule, finding.fix, finding.verdict) == (RULE, "unsafe", "rewrite")


def test_a_patch_file_of_the_body_that_has_the_hook_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "critic.py").write_bytes(CRITIC)
    (tmp_path / "megatron.patch").write_text(
        "--- a/megatron/core/models/gpt/gpt_model.py\n+++ b/megatron/core/models/gpt/gpt_model.py\n"
        "@@ -400,2 +400,3 @@ class GPTModel(LanguageModule):\n"
        "     def _postprocess(\n         self,\n+        more=None,\n"
    )
    critic, patch_file = scan([tmp_path], ScanOptions(fixes=True)).findings
    assert (patch_file.shape, patch_file.target.rpartition(".")[2]) == ("patch-file", "_postprocess")
    assert (critic.rule, critic.verdict) == (RULE, "rewrite")


def test_it_stays_where_the_project_allows_a_release_without_the_hook() -> None:
    """As mbridge, which asks for 0.12 or later: compat would raise the floor of all who use it."""
    for oldest, changed in (((0, 12), set()), ((0, 18), {"pkg/critic.py"})):
        chosen = Options(unsafe_fixes=True, pinned=lambda _, oldest=oldest: (oldest, (0, 19)))
        result = migrate({"pkg/critic.py": CRITIC}, chosen)
        assert result.changed == changed
        assert ("and the project allows" in said(result)) is (not changed)


@pytest.mark.parametrize(
    ("lines", "rewritten"),
    [
        ("head = LastLayer(8, 1)", True),
        ("head = LastLayer(8, 1).to(dtype).cuda()", True),
        ("head = LastLayer(8, 1)\n    head = wrapped(head)", False),
        ("head = None\n    for head in heads:\n        pass", False),
        ("head = LastLayer(8, 1)\n    for head in heads:\n        pass", False),
        ("head = LastLayer(8, 1)\n    with made() as head:\n        pass", False),
        ("head = LastLayer(8, 1)\n    if (head := other()):\n        pass", False),
        ("head, other = LastLayer(8, 1), 2", False),
        ("if (head := LastLayer(8, 1)):\n        pass", False),
        ("head: LastLayer = LastLayer(8, 1)", False),
        ("other.head = LastLayer(8, 1)", False),
        ("head = made()", False),
    ],
)
def test_a_layer_by_a_local_name_is_one_that_is_made_there_and_nowhere_else(lines: str, rewritten: bool) -> None:
    text = CRITIC.decode().replace("model.output_layer = LastLayer(config.hidden_size, 1)", lines)
    result = migrate({"pkg/critic.py": f"{text}    model.output_layer = head\n".encode()}, Options(unsafe_fixes=True))
    assert (result.changed == {"pkg/critic.py"}) is rewritten, said(result)
