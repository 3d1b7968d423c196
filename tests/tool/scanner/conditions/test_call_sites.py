"""Conditions around the calls of the function that installs a patch."""

import pytest
from checking import Source, found_in

from mcore_unpatch.findings.finding import Finding

HEAD = "import megatron.core\nfrom megatron.core.models.gpt import GPTModel\ndef f(self): ...\n"
INSTALL = f"{HEAD}def install():\n    GPTModel._postprocess = f\n"
OLD = "if megatron.core.__version__ < '0.16':\n    install()\n"
NEW = "if megatron.core.__version__ >= '0.16':\n    install()\n"
OTHER = "import megatron.core\nfrom patches import install\n"


def only(source: Source) -> Finding:
    (finding,) = found_in(source)
    return finding


def test_every_call_is_under_a_condition() -> None:
    assert only(INSTALL + OLD).verdict == "keep"  # nobody named a release: the older one may be what runs
    (finding,) = found_in(INSTALL + OLD, target=(0, 19))
    assert str(finding.live) == "<=0.15.3"
    assert finding.verdict == "delete"
    assert finding.evidence == "It never runs on megatron-core 0.19: it is called only where patches.py:6 allows it."
    assert "TypeError" not in finding.message
    assert (finding.breaks, finding.fails, finding.effect) == ((), (), "")  # or a report says that it raises
    (finding,) = found_in(INSTALL + NEW, target=(0, 19))
    assert any("TypeError" in text for text in finding.breaks)


def test_what_breaks_only_where_it_is_not_called_is_not_said() -> None:
    stack = {"requirements.txt": "megatron-core>=0.12.1,<=0.16.1\n"}
    wraps = INSTALL.replace(
        "    GPTModel._postprocess", "    before = GPTModel._postprocess\n    GPTModel._postprocess"
    )
    wraps = wraps.replace("(self)", "(*args, **kwargs)")
    (everywhere,) = found_in({"patches.py": f"{wraps}install()\n", **stack})
    assert "`GPTModel._postprocess` does not exist before megatron-core 0.13.0" in everywhere.message
    (narrowed,) = found_in({"patches.py": wraps + NEW, **stack})
    assert narrowed.message == "replaces `GPTModel._postprocess` on the class; runs only on megatron-core >=0.16.0"
    assert (narrowed.breaks, narrowed.fails, narrowed.affected, narrowed.effect) == ((), (), (), "")


def test_in_another_file() -> None:
    finding = only({"patches.py": INSTALL, "main.py": OTHER + OLD})
    assert str(finding.live) == "<=0.15.3"
    assert [(guard.path, guard.branch, guard.line) for guard in finding.live.guards] == [("main.py", "call", 3)]


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("import patches\n", "patches.install()"),
        ("import patches as ours\n", "ours.install()"),
        ("from . import (\n    patches,\n)\n", "patches . install()"),
        ("from patches import *\n", "install()"),
    ],
)
def test_as_the_function_of_a_module(imports: str, call: str) -> None:
    source = f"import megatron.core\n{imports}if megatron.core.__version__ < '0.16':\n    {call}\n"
    assert str(only({"patches.py": INSTALL, "main.py": source}).live) == "<=0.15.3"


def test_two_calls_add_up() -> None:
    assert str(only({"patches.py": INSTALL + OLD, "main.py": OTHER + NEW}).live) == "any"


@pytest.mark.parametrize(
    "more",
    [
        "install()\n",
        "hooks = [install]\n",
        "run(callback=install)\n",
        "import patches\npatches.install()\n",
        "getattr(patches, 'install')()\n",
    ],
)
def test_another_way_to_call_it(more: str) -> None:
    finding = only({"patches.py": INSTALL, "main.py": OTHER + OLD, "more.py": f"from patches import install\n{more}"})
    assert str(finding.live) == "any"


def test_a_function_nobody_calls_here() -> None:
    assert str(only(INSTALL).live) == "any"


def test_a_decorated_function_may_be_called_by_its_decorator() -> None:
    assert str(only(INSTALL.replace("def install", "@register\ndef install") + OLD).live) == "any"


def test_two_functions_of_one_name() -> None:
    findings = found_in({"patches.py": INSTALL + OLD, "more.py": INSTALL})
    assert [str(finding.live) for finding in findings] == ["any", "any"]


def test_the_conditions_of_both_hold() -> None:
    inner = "def install():\n    if megatron.core.__version__ >= '0.13':\n        GPTModel.forward = f\n"
    assert str(only(HEAD + inner + OLD).live) == ">=0.13.0,<=0.15.3"
