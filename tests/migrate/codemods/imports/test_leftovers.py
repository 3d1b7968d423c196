"""No import is left that nothing uses: where ruff had nothing to say of a file, it has nothing to say after."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
import releases
from goldens import CASES, migrated_golden
from planning import Result, migrate

from mcore_unpatch.editing.edits import Options

RUFF = Path(sys.executable).with_name("ruff")
HEAD = "from megatron.core.models.gpt.gpt_model import GPTModel\n\n\n"
WRAPPER = """
def double(model: GPTModel):
    original = model.decoder.forward

    @functools.wraps(original)
    def doubled(x: torch.Tensor, *args: Optional[torch.Tensor], **kw):
        out = original(x, *args, **kw)
        return out * 2

    model.decoder.forward = doubled
"""
HOOK = "model.decoder.register_forward_hook(doubled)"
IMPORTS = "import functools\nfrom typing import Any, Optional\n\nimport torch\n"


def unused(files: dict[str, bytes], folder: Path) -> set[tuple[str, str]]:
    """The unused imports of some files, by file and message."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    command = [
        RUFF,
        "check",
        "--isolated",
        "--select=F401",
        "--output-format=json",
        "--exit-zero",
        "--no-cache",
        folder,
    ]
    said = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    return {(Path(one["filename"]).relative_to(folder).as_posix(), one["message"]) for one in said}


@pytest.mark.slow
def test_goldens(tmp_path: Path) -> None:
    before, after = {}, {}
    for case in CASES:
        before[f"{case}.py"], after[f"{case}.py"] = migrated_golden(case)
    assert unused(after, tmp_path / "after") <= unused(before, tmp_path / "before")


@pytest.mark.parametrize("release", releases.OFTEN)
def test_releases_of_verl(release: str, migrated: Callable[[str], Result], tmp_path: Path) -> None:
    before, result = releases.verl(release), migrated(release)
    changed = {path: before[path] for path in result.changed}
    left = unused({path: result.files[path] for path in changed}, tmp_path / "after")
    assert left <= unused(changed, tmp_path / "before")


def rewritten(source: str, **others: str) -> str:
    files = {"pkg/wrap.py": source, **{f"pkg/{name}.py": text for name, text in others.items()}}
    result = migrate({path: text.encode() for path, text in files.items()}, Options(unsafe_fixes=True))
    return result.files["pkg/wrap.py"].decode()


def test_what_only_annotations_asked_for_goes() -> None:
    new = rewritten(IMPORTS + HEAD + WRAPPER)
    assert HOOK in new
    assert "from typing import Any\n" in new  # it was not used before
    assert not any(word in new for word in ("Optional", "functools", "torch"))


def test_in_a_function_and_in_a_block_for_type_checkers() -> None:
    source = HEAD + textwrap.dedent(
        """
        def double(model: GPTModel, ids):
            import functools
            from types import MethodType

            original = model.decoder.forward

            @functools.wraps(original)
            def doubled(*args, **kw):
                out = original(*args, **kw)
                return out * 2

            model.decoder.forward = doubled
            return MethodType(ids)
        """
    )
    new = rewritten(source)
    assert HOOK in new
    assert "import functools" not in new
    assert "    from types import MethodType\n" in new


@pytest.mark.parametrize(
    ("imports", "others"),
    [
        ("import functools  # noqa: F401\n", {}),
        ("import functools  # noqa\n", {}),
        ("import functools as functools\n", {}),
        ("import functools\n\n__all__ = ['functools', 'double']\n", {}),
        ("import functools\n", {"other": "from pkg.wrap import functools\n"}),
        ("import functools\n", {"other": "from .wrap import *\n"}),
        ("import functools\n", {"other": "from pkg import wrap\n\nwrap.functools\n"}),
        ("import functools\n", {"other": "import pkg.wrap as w\n\nw.functools\n"}),
        ("import functools\n", {"other": "import pkg.wrap as w\n\n\ndef t(m):\n    m.setattr(w, 'functools', None)\n"}),
        ("import functools\n", {"other": "from unittest import mock\n\nmock.patch('pkg.wrap.functools.wraps')\n"}),
    ],
    ids=["noqa F401", "noqa", "as itself", "__all__", "imported", "star", "of the module", "alias", "setattr", "mock"],
)
def test_what_others_have_from_here_stays(imports: str, others: dict[str, str]) -> None:
    others |= {"__init__": ""}
    source = imports + HEAD + WRAPPER.replace(": torch.Tensor", "").replace(": Optional[torch.Tensor]", "")
    new = rewritten(source, **others)
    assert HOOK in new
    assert imports.partition("\n")[0] in new
    nobody = rewritten(
        "import functools\n" + source.removeprefix(imports), __init__="", other="import functools\n\nfunctools.x\n"
    )
    assert "import functools" not in nobody


def test_an_init_file_keeps_its_imports() -> None:
    files = {"pkg/__init__.py": (IMPORTS + HEAD + WRAPPER).encode()}
    new = migrate(files, Options(unsafe_fixes=True)).files["pkg/__init__.py"].decode()
    assert HOOK in new
    assert "import functools\n" in new
    assert "Optional" in new


@pytest.mark.parametrize(
    ("imports", "stays"),
    [
        ("import functools\nimport os  # noqa: F401\n", False),
        ("import os  # noqa: F401\nimport functools\n", False),
        ("import functools  # noqa: F401\n", True),
        ("import functools  # NOQA\n", True),
        ("import functools  # noqa: E501, F401\n", True),
        ("import functools  # noqa: E501\n", False),
    ],
)
def test_a_comment_keeps_the_import_on_its_own_line(imports: str, stays: bool) -> None:
    body = WRAPPER.replace(": torch.Tensor", "").replace(": Optional[torch.Tensor]", "")
    new = migrate({"a.py": f"{imports}{HEAD}{body}".encode()}, Options(unsafe_fixes=True)).files["a.py"].decode()
    assert HOOK in new
    assert ("import functools" in new) == stays
