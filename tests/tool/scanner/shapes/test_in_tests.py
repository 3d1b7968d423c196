"""Tests: their findings are marked; fakes of whole modules, and what is set on them, are no patches."""

import pytest
from checking import check_found, check_noop, found_in, with_mocks

PATCH = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"
FAKE = "import sys, types\nsys.modules['megatron.core'] = types.ModuleType('megatron.core')\n"
SETS = "from megatron.core import mpu\nmpu.get_context_parallel_rank = lambda: 0\n"


@pytest.mark.parametrize(
    ("path", "in_test"),
    [
        ("rl/patches.py", False),
        ("rl/contest.py", False),
        ("tests/patches.py", True),
        ("test/patches.py", True),
        ("rl/tests/deep/patches.py", True),
        ("rl/test_patches.py", True),
        ("rl/patches_test.py", True),
        ("conftest.py", True),
    ],
)
def test_marked(path: str, in_test: bool) -> None:
    check_found({path: PATCH}, in_test=in_test)


def test_a_patch_file_of_tests_is_marked() -> None:
    text = "--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n@@ -1 +1 @@\n-a\n+b\n"
    check_found({"tests/data/a.patch": text}, in_test=True, shape="patch-file")


class TestFakes:
    def test_a_patch_of_the_real_module_is_found(self) -> None:
        check_found({"tests/test_a.py": SETS}, rule="MCU602")

    def test_in_the_same_file(self) -> None:
        check_noop({"tests/test_a.py": FAKE + SETS})

    def test_of_the_module_alone(self) -> None:
        fake = FAKE.replace("'megatron.core'", "'megatron.core.utils'")
        check_noop({"tests/test_a.py": fake + "import megatron.core.utils as u\nu.get_model_config = print\n"})
        check_found({"tests/test_a.py": fake + SETS}, rule="MCU602")

    def test_by_monkeypatch(self) -> None:
        check_noop(
            {
                "tests/test_a.py": """
                import sys, types
                def test(monkeypatch):
                    for name in ["megatron", "megatron.core", "megatron.core.utils"]:
                        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
                    sys.modules["megatron.core.utils"].get_model_config = lambda model: None
                """
            }
        )

    def test_in_a_helper_that_is_imported(self) -> None:
        check_noop({"tests/helpers.py": FAKE, "tests/test_a.py": "from helpers import start\n" + SETS})

    @pytest.mark.parametrize("conftest", ["conftest.py", "tests/conftest.py"])
    def test_in_a_conftest_above(self, conftest: str) -> None:
        check_noop({conftest: FAKE, "tests/test_a.py": SETS})

    def test_a_conftest_elsewhere_does_not_count(self) -> None:
        check_found({"other/conftest.py": FAKE, "tests/test_a.py": SETS}, path="tests/test_a.py")

    def test_outside_of_tests_it_is_a_patch(self) -> None:
        assert {finding.rule for finding in found_in({"rl/start.py": FAKE + SETS})} == {"MCU602", "MCU605"}

    def test_selected_they_are_shown_as_stubs(self) -> None:
        findings = found_in({"tests/test_a.py": FAKE + SETS}, **with_mocks())
        assert [finding.rule for finding in findings] == ["MCU902", "MCU902"]


MARKERS = [
    "cls._patched = True",
    "setattr(cls, '_patched', True)",
    "setattr(cls, name, True)",
    "cls._patched_by = 'us'",
    "type(model)._patched = 1",
    "model.__class__._patched = True",
]


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_on_a_class_is_no_patch(marker: str) -> None:
    check_noop(
        f"from megatron.core.models.gpt import GPTModel\ndef go(model: GPTModel, name, cls=GPTModel):\n    {marker}\n"
    )


def test_a_marker_on_modules_is_no_patch() -> None:
    check_found(
        """
        import sys
        import megatron.core.utils as utils
        original = utils.get_model_config
        for module in list(sys.modules.values()):
            if getattr(module, "get_model_config", None) is original:
                module.get_model_config = print
                module._patched = True
                setattr(module, "_patched_by", "us")
        """,
        line=7,
    )
