"""What of Megatron's loads only where other packages are installed: told from the wheels, release by release."""

from pathlib import Path

import pytest
from checking import found_in
from downloads import unpacked

from mcore_unpatch.megatron import needs
from mcore_unpatch.megatron.definitions import module_files

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


@pytest.fixture
def found(tmp_path: Path) -> dict[str, str]:
    for name, text in FILES.items():
        path = tmp_path / "megatron" / "core" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    read = needs.read(dict(module_files(tmp_path)))
    return {name.removeprefix("megatron.core."): " ".join(sorted(packages)) for name, packages in read.items()}


def test_what_each_module_needs(found: dict[str, str]) -> None:
    assert found == {
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
        "other.einops": "einops optional",
        "names.A": "optional",
        "names.C": "optional",
        "names.D": "optional",
    }


def test_what_megatron_itself_needs_everybody_has(tmp_path: Path) -> None:
    folder = tmp_path / "megatron" / "core"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("import triton\n")
    (folder / "kernels.py").write_text("import triton, einops\n")
    assert needs.read(dict(module_files(tmp_path))) == {"megatron.core.kernels": frozenset({"einops"})}


def test_releases_are_told_apart() -> None:
    table = needs.merged({"0.1.0": {"m": frozenset("b")}, "0.2.0": {"m": frozenset("b")}, "0.3.0": {}, "0.4.0": {}})
    assert table == {"m": {"0.1.0": "b", "0.3.0": ""}}


def test_one_release_read_anew_is_the_one_that_is_shipped() -> None:
    read = needs.read(dict(module_files(unpacked("megatron-core", "0.18.2"))))
    assert {name: frozenset(needs.needed(name, "0.18.2")) for name in read} == read
    assert not needs.needed("megatron.core.models.gpt.GPTModel", "0.18.2")


@pytest.mark.parametrize(
    ("imported", "live"),
    [
        ("megatron.core.utils", "none"),
        ("megatron.core.transformer.moe.router", "none"),
        # Needs Transformer Engine up to some release, and loads without it since.
        ("megatron.core.extensions.transformer_engine", "<=0.12.3"),
        # Needs tensorstore and zarr, then catches their absence, then is gone.
        ("megatron.core.dist_checkpointing.strategies.tensorstore", "<=0.12.3 or >=0.16.0"),
    ],
)
def test_a_handler_is_dead_only_where_the_import_cannot_fail(imported: str, live: str) -> None:
    source = f"from megatron.core.models.gpt import GPTModel\ntry:\n    import {imported}\nexcept ImportError:\n"
    (finding,) = found_in(f"{source}    GPTModel.forward = print\n")
    assert str(finding.live) == live
