"""Mocks are a family of their own."""

import pytest
from checking import CORE, GPT, check_found, check_noop, with_mocks

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
