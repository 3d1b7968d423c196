"""Value heads in a repository of several files: who else reads the layer, and what scan says."""

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


@pytest.mark.parametrize(
    "text",
    [
        "def output_layer_of(critic):\n    return critic.output_layer\n",  # the name is theirs
        "def load(name, value_head):\n    return name == 'module.output_layer.weight'\n",
        "class A:\n    def load(self, value_model):\n        return [f'{self.prefix}output_layer.weight']\n",
    ],
)
def test_stays_while_code_for_critics_reads_the_layer(text: str) -> None:
    result = beside(text)
    assert result.changed == set()
    line = 2 if text.startswith("def") else 3
    assert f"Not rewritten: pkg/other.py:{line} uses the output layer of a critic." in said(result)
    assert f"for a critic it is `value_head.output_layer`: pkg/other.py:{line}." in said(result)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("critic.output_layer.weight", "output_layer_of(critic).weight"),
        ("unwrap(critic.models[0]).output_layer", "output_layer_of(unwrap(critic.models[0]))"),
        ("getattr(critic, 'output_layer', None)", "output_layer_of(critic, None)"),
        ("getattr(critic.models[0], 'output_layer')", "output_layer_of(critic.models[0])"),
    ],
)
def test_code_for_critics_reads_the_layer_of_any_model(before: str, after: str) -> None:
    reading = f"def reset(critic):\n    return {before}\n"
    second = CRITIC.replace(b"def ", b"def another_")
    files = {"pkg/critic.py": CRITIC, "pkg/second.py": second, "pkg/other.py": reading.encode()}
    result = migrate(files, Options(unsafe_fixes=True))
    assert result.changed == {*files}
    imported = "from mcore_unpatch.compat import output_layer_of\n\n\n"
    assert result.files["pkg/other.py"].decode() == f"{imported}def reset(critic):\n    return {after}\n"
    left = migrate(files, Options(unsafe_fixes=True), editable=["pkg/critic.py", "pkg/second.py"])
    assert left.changed == set()
    shown = migrate(files)
    assert shown.changed == set()


@pytest.mark.parametrize(
    "text",
    [
        "def load(name, critic):\n    return name.endswith('output_layer.weight')\n",
        "def load(name, critic):\n    return 'output_layer' in name\n",
        "def load(path, critic):\n    return dist_checkpointing.load_tensors_metadata(path)['output_layer.weight']\n",
    ],
)
def test_names_that_are_also_a_part_of_the_new_one_do_not_count(text: str) -> None:
    result = beside(text)
    assert result.changed == {"pkg/critic.py"}
    assert not said(result)


@pytest.mark.parametrize(
    "text",
    [
        "def load(name, critic):\n    return 'output_layer' == name\n",
        "def load(name, critic):\n    return name in 'output_layer'\n",
        "def load(critic):\n    dist_checkpointing.load()\n    return critic.state_dict()['output_layer.weight']\n",
    ],
)
def test_whole_names_count(text: str) -> None:
    assert beside(text).changed == set()


def test_key_value_heads_are_no_value_heads() -> None:
    text = "def load(model, num_key_value_heads):\n    return f(model).output_layer.weight\n"
    assert beside(text).changed == {"pkg/critic.py"}


@pytest.mark.parametrize(
    "text",
    [
        "NAMES = {'output_layer.weight': 'lm_head.weight'}\n",
        "def weight(model):\n    return model.output_layer.weight\n",
    ],
)
def test_other_lines_are_listed(text: str) -> None:
    result = beside(text)
    assert b"add_value_head(model, LastLayer(config.hidden_size, 1))" in result.files["pkg/critic.py"]
    assert f"it is `value_head.output_layer`: pkg/other.py:{text.count(chr(10))}." in said(result)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("def test_critic(critic):\n    assert critic.output_layer.weight is None\n", "tests/test_critic.py"),
        ("class Critic:\n    def forward(self, critic):\n        return self.output_layer(critic)\n", "pkg/other.py"),
        ("def check(critic):\n    assert hasattr(critic, 'output_layer'), 'the output_layer is missing'\n", "pkg/o.py"),
    ],
)
def test_tests_own_layers_and_questions_do_not_count(text: str, path: str) -> None:
    result = beside(text, path)
    assert b"add_value_head(" in result.files["pkg/critic.py"]
    assert not said(result)


def test_many_lines_are_counted() -> None:
    text = "NAMES = [\n" + "    'output_layer.weight',\n" * 30 + "]\n"
    assert said(beside(text)).endswith("pkg/other.py:9 and 22 more.")


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("pkg/bridge/hooks.py", b""),
        ("pkg/bridge_helpers.py", b""),
        ("pkg/critic.py", b"\n\nAutoMapping.register_module_type('LastLayer', 'replicated')\n"),
    ],
)
def test_a_bridge_would_not_find_the_head(path: str, more: bytes) -> None:
    result = migrate({path: CRITIC + more}, Options(unsafe_fixes=True))
    assert result.changed == set()
    assert f"Not rewritten: {path} makes or saves models with a bridge, which knows parameters by name" in said(result)


def test_a_class_that_is_only_exported_is_not_told_to_a_bridge() -> None:
    result = migrate({"pkg/critic.py": CRITIC + b"\n\n__all__ = ['LastLayer']\n"}, Options(unsafe_fixes=True))
    assert result.changed == {"pkg/critic.py"}


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


def test_stays_where_a_bridge_saves_the_model() -> None:
    bridge = "from megatron.bridge import AutoBridge\n\ndef save(critic, path):\n    AutoBridge().save(critic, path)\n"
    result = beside(bridge)
    assert result.changed == set()
    assert "pkg/other.py makes or saves models with a bridge" in said(result)
    assert beside(bridge, "tests/test_bridge.py").changed == {"pkg/critic.py"}  # a test saves no critic
