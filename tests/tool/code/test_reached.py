"""On which releases a place is reached: version tests in every form, imports that fail, signatures, exits."""

import pytest
from rooms import reached_on

VERSION = "from packaging.version import Version, parse\nimport megatron.core\n"
ROUTER = "from megatron.core.transformer.moe.router import TopKRouter\n"
GPT = "from megatron.core.models.gpt.gpt_model import GPTModel\n"
IMPORT = "try:\n    from megatron.core.transformer.moe import router_replay\n"
HELPER = "def recent(least, version=None):\n    return Version(megatron.core.__version__) >= Version(least)\n"

PLACES = {
    "nothing": ("place()", "all"),
    "a version": ('if Version(megatron.core.__version__) >= Version("0.16"):\n    place()', "0.16.0 ... later"),
    "the other branch": (
        'if parse(megatron.core.__version__) < parse("0.16.0"):\n    pass\nelse:\n    place()',
        "0.16.0 ... later",
    ),
    "a version from the distribution": (
        'from importlib.metadata import version\nif Version(version("megatron_core")) < Version("0.14"):\n    place()',
        "... 0.13.1",
    ),
    "numbers of a version": (
        "v = Version(megatron.core.__version__)\nif (v.major, v.minor) >= (0, 17):\n    place()",
        "0.17.0 ... later",
    ),
    "numbers of a text": (
        'v = tuple(int(x) for x in megatron.core.__version__.split(".")[:2])\nif v < (0, 15):\n    place()',
        "... 0.14.0",
    ),
    "numbers of the package": (
        "from megatron.core.package_info import MINOR\nif MINOR >= 18:\n    place()",
        "0.18.0 ... later",
    ),
    "between two": (
        'v = Version(megatron.core.__version__)\nif Version("0.14") <= v < Version("0.16"):\n    place()',
        "0.14.0 ... 0.15.3",
    ),
    "a flag": ('NEW = Version(megatron.core.__version__) >= Version("0.17")\nif not NEW:\n    place()', "... 0.16.1"),
    "a helper": (HELPER + 'if recent("0.18"):\n    place()', "0.18.0 ... later"),
    "an early exit": (
        HELPER + 'def f():\n    if recent("0.13"):\n        return\n    place()',
        "... 0.12.3",
    ),
    "an assertion": (HELPER + 'def f():\n    assert recent("0.18")\n    place()', "0.18.0 ... later"),
    "something that is not known besides": (HELPER + 'if recent("0.18") and f():\n    place()', "0.18.0 ... later"),
    "something that is not known instead": (HELPER + 'if recent("0.18") or f():\n    place()', "all"),
    "a conditional expression": (HELPER + 'place() if recent("0.17") else None', "0.17.0 ... later"),
    "what stands before it": (HELPER + 'recent("0.17") and place()', "0.17.0 ... later"),
    "an import that works": (
        IMPORT + "except ImportError:\n    pass\nelse:\n    place()",
        "0.16.0 ... later",
    ),
    "an import that fails": (
        IMPORT + "except ImportError:\n    place()",
        "... 0.15.3",
    ),
    "a flag of an import": (
        IMPORT + "    HAVE = True\nexcept ImportError:\n    HAVE = False\nif HAVE:\n    place()",
        "0.16.0 ... later",
    ),
    "a name of an import": (
        IMPORT + "except ImportError:\n    router_replay = None\nif router_replay is None:\n    place()",
        "... 0.15.3",
    ),
    "an import in the function": (
        "def f():\n    from megatron.core.transformer.moe import router_replay\n    place()",
        "0.16.0 ... later",
    ),
    "an import of the whole file": ("from megatron.core.transformer.moe import router_replay\nplace()", "all"),
    "hasattr": (ROUTER + 'if hasattr(TopKRouter, "is_aux_loss_enabled"):\n    place()', "0.14.0 ... later"),
    "a mark of its own": (
        ROUTER
        + 'def f():\n    if hasattr(TopKRouter, "_mine"):\n        return\n    place()\n    TopKRouter._mine = True',
        "all",
    ),
    "a signature": (
        "import inspect\n"
        + GPT
        + 'if "output_processor" in inspect.signature(GPTModel.forward).parameters:\n    place()',
        "0.18.0 ... later",
    ),
    "a signature without": (
        "import inspect\n" + GPT + "known = inspect.signature(GPTModel.forward).parameters\n"
        'if "output_processor" not in known:\n    place()',
        "... 0.17.1",
    ),
    "for types alone": (
        "from typing import TYPE_CHECKING\nimport typing\nif typing.TYPE_CHECKING:\n    place()",
        "none",
    ),
    "another library's version": ('import torch\nif Version(torch.__version__) >= Version("2"):\n    place()', "all"),
    "what is set elsewhere": ("def f():\n    global ON\n    ON = True\nif ON:\n    place()", "all"),
}


@pytest.mark.parametrize("case", PLACES)
def test_where_a_place_is_reached(case: str) -> None:
    code, expected = PLACES[case]
    assert reached_on(f"{VERSION}{code}\n") == expected


def test_a_flag_of_another_file() -> None:
    files = {"flags.py": VERSION + 'NEW = parse(megatron.core.__version__) >= parse("0.17")\n'}
    files["a.py"] = "from flags import NEW\nif NEW:\n    place()\n"
    assert reached_on(files) == "0.17.0 ... later"
