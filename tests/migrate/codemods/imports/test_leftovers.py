"""No import is left that nothing uses: where ruff had nothing to say of a file, it has nothing to say after."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from itertools import product
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

    def doubled(self, x: torch.Tensor, *args: Optional[torch.Tensor], **kw):
        return original(x, *args, **kw) * 2

    model.decoder.forward = types.MethodType(doubled, model.decoder)
"""
HOOK = "model.decoder.register_forward_hook(doubled)"
VERL = "from verl.models.mcore.mtp_patch import patch_postprocess"
IMPORTS = "import types\nfrom typing import Any, Optional\n\nimport torch\n"


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


@pytest.mark.parametrize("release", releases.VERL)
def test_releases_of_verl(release: str, migrated: Callable[[str], Result], tmp_path: Path) -> None:
    before, result = releases.verl(release), migrated(release)
    changed = {path: before[path] for path in result.changed}
    left = unused({path: result.files[path] for path in changed}, tmp_path / "after")
    assert left <= unused(changed, tmp_path / "before")


def test_nemo_rl(tmp_path: Path) -> None:
    before = releases.nemo_rl()
    result = migrate(before)
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
    assert not any(word in new for word in ("Optional", "types", "torch"))


def test_in_a_function_and_in_a_block_for_type_checkers() -> None:
    source = HEAD + textwrap.dedent(
        """
        def double(model: GPTModel, ids):
            import types
            from functools import wraps

            original = model.decoder.forward

            def doubled(self, *args, **kw):
                return original(*args, **kw) * 2

            model.decoder.forward = types.MethodType(doubled, model.decoder)
            return wraps(ids)
        """
    )
    new = rewritten(source)
    assert HOOK in new
    assert "import types" not in new
    assert "    from functools import wraps\n" in new


@pytest.mark.parametrize(
    ("imports", "others"),
    [
        ("import types  # noqa: F401\n", {}),
        ("import types  # noqa\n", {}),
        ("import types as types\n", {}),
        ("import types\n\n__all__ = ['types', 'double']\n", {}),
        ("import types\n", {"other": "from pkg.wrap import types\n"}),
        ("import types\n", {"other": "from .wrap import *\n"}),
        ("import types\n", {"other": "from pkg import wrap\n\nwrap.types\n"}),
        ("import types\n", {"other": "import pkg.wrap as w\n\nw.types\n"}),
        ("import types\n", {"other": "import pkg.wrap as w\n\n\ndef t(m):\n    m.setattr(w, 'types', None)\n"}),
        ("import types\n", {"other": "from unittest import mock\n\nmock.patch('pkg.wrap.types.MethodType')\n"}),
    ],
    ids=["noqa F401", "noqa", "as itself", "__all__", "imported", "star", "of the module", "alias", "setattr", "mock"],
)
def test_what_others_have_from_here_stays(imports: str, others: dict[str, str]) -> None:
    others |= {"__init__": ""}
    source = imports + HEAD + WRAPPER.replace(": torch.Tensor", "").replace(": Optional[torch.Tensor]", "")
    new = rewritten(source, **others)
    assert HOOK in new
    assert imports.partition("\n")[0] in new
    nobody = rewritten("import types\n" + source.removeprefix(imports), __init__="", other="import types\n\ntypes.x\n")
    assert "import types" not in nobody


def test_an_init_file_keeps_its_imports() -> None:
    files = {"pkg/__init__.py": (IMPORTS + HEAD + WRAPPER).encode()}
    new = migrate(files, Options(unsafe_fixes=True)).files["pkg/__init__.py"].decode()
    assert HOOK in new
    assert "import types\n" in new
    assert "Optional" in new


def test_a_safe_edit_takes_nothing_away_for_a_proposal_that_is_only_shown() -> None:
    source = "from verl.models.mcore.mtp_patch import patch_postprocess\n" + IMPORTS + HEAD + WRAPPER
    new = migrate({"pkg/wrap.py": source.encode()}).files["pkg/wrap.py"].decode()
    assert "mcore_unpatch.compat.verl" in new
    assert "import types\n" in new
    assert "Optional" in new


@pytest.mark.parametrize(
    ("imports", "stays"),
    [
        ("import types\nimport os  # noqa: F401\n", False),
        ("import os  # noqa: F401\nimport types\n", False),
        ("import types  # noqa: F401\n", True),
        ("import types  # NOQA\n", True),
        ("import types  # noqa: E501, F401\n", True),
        ("import types  # noqa: E501\n", False),
    ],
)
def test_a_comment_keeps_the_import_on_its_own_line(imports: str, stays: bool) -> None:
    body = WRAPPER.replace(": torch.Tensor", "").replace(": Optional[torch.Tensor]", "")
    new = migrate({"a.py": f"{imports}{HEAD}{body}".encode()}, Options(unsafe_fixes=True)).files["a.py"].decode()
    assert HOOK in new
    assert ("import types" in new) == stays


SECTIONS = (
    ("import os", "from typing import Any"),
    ("import torch", "from aa import b", "from zz import c"),
    ("from pkg.other import d",),
    ("from . import e",),
)


@pytest.mark.slow
def test_sorted_imports_stay_sorted(tmp_path: Path) -> None:
    """Every choice of neighbours of an import that is renamed; ruff has nothing to say before, and nothing after."""
    lines = [line for section in SECTIONS for line in section]
    before: dict[str, bytes] = {"pkg/__init__.py": b"", "pkg/other.py": b"d = 1\n"}
    for chosen in product((False, True), repeat=len(lines)):
        there = {line for line, is_there in zip(lines, chosen, strict=True) if is_there}
        third = sorted({*SECTIONS[1], VERL}, key=lambda line: (line.startswith("from"), line.split()[1]))
        sections = [
            [line for line in section if line in {*there, VERL}] for section in (SECTIONS[0], third, *SECTIONS[2:])
        ]
        text = "\n\n".join("\n".join(section) for section in sections if section)
        name = "".join(str(int(is_there)) for is_there in chosen)
        before[f"pkg/m{name}.py"] = f"{text}\n\nprint(patch_postprocess)\n".encode()
    after = migrate(before).files
    assert all(b"from mcore_unpatch.compat.verl" in data for path, data in after.items() if "/m" in path)
    for name, files in (("before", before), ("after", after)):
        unused(files, tmp_path / name)
        options = ["--isolated", "--select=I001", "--no-cache", "--config=src=['.']"]
        said = subprocess.run([RUFF, "check", *options, "."], cwd=tmp_path / name, capture_output=True, text=True)
        assert (name, said.returncode) == (name, 0), said.stdout[:2000]
