"""What of Megatron's loads only where other packages are installed: told from the wheels, release by release."""

from mcore_unpatch.library.build import build
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import LIBRARY

FILES = {
    "__init__.py": "import torch, os\n",
    "plain.py": "import numpy\nfrom packaging.version import Version\n",
    "direct.py": "import einops.layers\n",
    "relative.py": "from .direct import x\n",
    "absolute.py": "from megatron.core import relative\n",
    "round_a.py": "from . import round_b\n",
    "round_b.py": "from . import round_a\nimport triton\n",
    "folder/__init__.py": "import zarr\n",
    "folder/inside.py": "",
    "shared.py": "import megatron.energon\n",
    "caught.py": "try:\n    import einops\nexcept ImportError:\n    einops = None\n",
    "raised.py": "try:\n    import einops\nexcept ImportError:\n    raise ImportError('einops is needed')\n",
    "other.py": "try:\n    import einops\nexcept ValueError:\n    pass\n",
    "asked.py": "if have():\n    import einops\nelse:\n    einops = None\n",
    "later.py": "def f():\n    import einops\n",
    "names.py": "try:\n    from te import A, B\n    C = 1\nexcept ImportError:\n    B = None\nif have():\n    D = 1\n"
    "with x:\n    E = 1\nif have():\n    F = 1\nelse:\n    raise RuntimeError\n",
}


def needs(files: dict[str, str]) -> dict[str, str]:
    """What the names of a source need, below `megatron.core`."""
    model = build(LIBRARY, "1", [(f"megatron/core/{name}", text.encode()) for name, text in files.items()])
    needed = {name: " ".join(known.needed(name, model)) for name in model.facts}
    return {name.removeprefix("megatron.core."): packages for name, packages in needed.items() if packages}


def test_what_each_module_needs() -> None:
    assert (
        needs(FILES).items()
        >= {
            "direct": "einops",
            "relative": "einops",
            "absolute": "einops",
            "round_a": "triton",
            "round_b": "triton",
            "folder": "zarr",
            "folder.inside": "zarr",
            "shared": "megatron.energon",
            "raised": "einops",
            "other": "einops",
            "other.einops": "optional",
            "names.A": "optional",
            "names.C": "optional",
            "names.D": "optional",
        }.items()
    )
    assert not {"plain", "caught", "asked", "later", "names", "names.B", "names.E", "names.F"} & needs(FILES).keys()


def test_what_megatron_itself_needs_everybody_has() -> None:
    assert needs({"__init__.py": "import triton\n", "kernels.py": "import triton, einops\n"})["kernels"] == "einops"


def test_a_plain_class_of_a_release_needs_nothing_more() -> None:
    assert not known.needed("megatron.core.models.gpt.GPTModel", known.model("0.18.2"))
