"""Mocks are a family of their own; `.patch` and `.diff` files that touch Megatron Core are patches too."""

import pytest
from checking import CORE, GPT, check_found, check_noop, found_in, with_mocks

MOCKS = {
    "mock.patch(f'')": "mock.patch('megatron.core.models.gpt.gpt_model.GPTModel.forward')",
    "mock.patch.object": "mock.patch.object(GPTModel, 'forward')",
    "patch": "patch('megatron.core.models.gpt.gpt_model.GPTModel.forward')",
    "patch.object": "patch.object(GPTModel, 'forward')",
    "unittest.mock.patch": "unittest.mock.patch('megatron.core.models.gpt.GPTModel.forward')",
    "monkeypatch.setattr": "monkeypatch.setattr(GPTModel, 'forward', print)",
    "monkeypatch by name": "monkeypatch.setattr('megatron.core.models.gpt.gpt_model.GPTModel.forward', print)",
    "mocker": "mocker.patch.object(GPTModel, 'forward')",
}


class TestMocks:
    @pytest.mark.parametrize("call", MOCKS.values(), ids=MOCKS)
    def test_found_when_selected(self, call: str) -> None:
        source = f"""
            import unittest.mock
            from unittest import mock
            from unittest.mock import patch
            from megatron.core.models.gpt import GPTModel
            def test_it(monkeypatch, mocker):
                {call}
        """
        check_found(
            source,
            options=with_mocks(),
            target=f"{GPT}.forward",
            shape="mock",
            rule="MCU901",
            temporary=True,
            seam="none",
        )
        check_noop(source)

    def test_as_a_decorator(self) -> None:
        check_found(
            "from unittest import mock\n@mock.patch('megatron.core.utils.get_model_config')\ndef test_it(m): ...\n",
            options=with_mocks(),
            target=f"{CORE}.utils.get_model_config",
            shape="mock",
        )

    def test_of_something_else(self) -> None:
        check_noop(
            "from unittest import mock\n"
            "import megatron.core\n"
            "def test_it(monkeypatch):\n"
            "    monkeypatch.setattr('os.getcwd', print)\n",
            **with_mocks(),
        )

    def test_a_function_called_patch_is_no_mock(self) -> None:
        check_found(
            """
            from megatron.core.models.gpt import GPTModel
            def patch(owner, name, fn):
                setattr(owner, name, fn)
            patch(GPTModel, "forward", print)
            """,
            shape="setattr",
        )

    def test_a_stub_of_a_whole_module_in_a_test(self) -> None:
        files = {
            "tests/conftest.py": "import sys, types\nsys.modules['megatron.core'] = types.ModuleType('megatron.core')\n"
        }
        check_noop(files)
        check_found(files, options=with_mocks(), rule="MCU902", shape="sys-modules")


DIFF = """\
diff --git a/megatron/core/models/gpt/gpt_model.py b/megatron/core/models/gpt/gpt_model.py
index 1..2 100644
--- a/megatron/core/models/gpt/gpt_model.py
+++ b/megatron/core/models/gpt/gpt_model.py
@@ -1,1 +1,1 @@
-old
+new
diff --git a/megatron/core/transformer/mlp.py b/megatron/core/transformer/mlp.py
--- a/megatron/core/transformer/mlp.py
+++ b/megatron/core/transformer/mlp.py
@@ -1,1 +1,1 @@
-old
+new
"""


class TestPatchFiles:
    @pytest.mark.parametrize("name", ["docker/megatron.patch", "fixes/mcore.diff"])
    def test_one_finding_per_file(self, name: str) -> None:
        finding = check_found(
            {name: DIFF},
            path=name,
            line=1,
            target=f"{CORE}.models.gpt.gpt_model",
            shape="patch-file",
            rule="MCU608",
            related={"touches": [8]},
        )
        assert "1 more file" in finding.message

    def test_without_git_headers(self) -> None:
        check_found(
            {
                "a.patch": "--- megatron/core/utils.py\t2026-01-01\n"
                "+++ megatron/core/utils.py\t2026-01-02\n"
                "@@ -1 +1 @@\n"
                "-a\n"
                "+b\n"
            },
            target=f"{CORE}.utils",
        )

    def test_below_a_vendored_folder(self) -> None:
        check_found(
            {"a.patch": DIFF.replace("megatron/core", "third_party/Megatron-LM/megatron/core")},
            target=f"{CORE}.models.gpt.gpt_model",
        )

    def test_with_windows_line_ends(self) -> None:
        finding = check_found({"a.patch": DIFF.replace("\n", "\r\n").encode()}, target=f"{CORE}.models.gpt.gpt_model")
        assert "\r" not in finding.source

    def test_mtp_alone(self) -> None:
        text = DIFF[: DIFF.index("diff --git a/megatron/core/transformer")].replace(
            "models/gpt/gpt_model", "transformer/multi_token_prediction"
        )
        check_found({"a.patch": text}, seam="mtp")

    @pytest.mark.parametrize(
        "folder", ["megatron/training", "verl/models", "megatron/core_extras", "docs/megatron/corefiles"]
    )
    def test_other_files(self, folder: str) -> None:
        check_noop({"a.patch": DIFF.replace("megatron/core", folder)})

    def test_binary_bytes(self) -> None:
        assert found_in({"a.patch": b"\x00\xff\xfe garbage\n" * 10}) == []

    def test_text_that_only_mentions_it(self) -> None:
        check_noop({"a.diff": "@@ -1 +1 @@\n-import megatron/core/utils.py\n+see megatron/core/utils.py\n"})
