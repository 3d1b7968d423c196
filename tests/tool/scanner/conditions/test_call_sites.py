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
