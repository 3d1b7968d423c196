"""Whatever surrounds an import: a second run changes nothing, and outside the edits not one byte moves."""

from __future__ import annotations

import ast

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from planning import migrate, planned

from mcore_unpatch.codemods.catalogue.verl import VERL
from mcore_unpatch.codemods.shims.contract import Shim
from mcore_unpatch.editing.edits import Options

pytestmark = pytest.mark.slow
PACKAGE = "verl.models.mcore"
SETTINGS = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def shim_imports(draw: st.DrawFn) -> str:
    """An import of one of the three files, in any of its forms."""
    shim: Shim = draw(st.sampled_from(VERL.shims))
    names = draw(st.lists(st.sampled_from(sorted(shim.names)), min_size=1, max_size=3, unique=True))
    names += draw(st.sampled_from([[], ["our_own"]]))
    written = [f"{name} as n{index}" if draw(st.booleans()) else name for index, name in enumerate(names)]
    form = draw(st.sampled_from(["line", "paren", "comments", "module", "plain", "dotted"]))
    if form == "line":
        return f"from {PACKAGE}.{shim.module} import {', '.join(written)}"
    if form == "paren":
        return f"from {PACKAGE}.{shim.module} import (" + ", ".join(written) + ",)"
    if form == "comments":
        rows = "".join(f"    # über {index}\n    {name},  # {name}\n" for index, name in enumerate(written))
        return f"from {PACKAGE}.{shim.module} import (  # first\n{rows})"
    used = names[0]
    if form == "module":
        return f"from {PACKAGE} import {shim.module} as m; m.{used}"
    if form == "plain":
        return f"import {PACKAGE}.{shim.module} as m\nm.{used}"
    return f"import {PACKAGE}.{shim.module}\n{PACKAGE}.{shim.module}.{used}"


NEIGHBOURS = st.sampled_from(
    [
        "import os",
        "import torch",
        "from typing import Any",
        "from torch import nn",
        "from .util import helper",
        "from verl.utils import other",
        "# a comment",
        "",
        "x = 1  # naïve",
        "\x0c",
        "try:\n    import apex\nexcept ImportError:\n    apex = None",
        'def f():\n    """Text."""\n    from verl.models.mcore.mtp_patch import patch_postprocess as p\n    return p',
        "if x:\n    from verl.models.mcore.mtp_patch import unpatch_postprocess",
        "from mcore_unpatch.compat.verl.mtp_patch import patch_postprocess",
        "from nemo_rl.distributed.model_utils import patch_gpt_model_forward_for_linear_ce_fusion, topk",
        'def g(model, kw):\n    kw["return_logprobs_for_linear_ce_fusion"] = True\n    return model(**kw)',
    ]
)


@st.composite
def modules(draw: st.DrawFn) -> bytes:
    """A file with such imports among others, in any encoding and with any line ending."""
    parts = draw(st.lists(st.one_of(NEIGHBOURS, shim_imports()), min_size=1, max_size=8))
    text = "\n".join(["x = 0", *parts]) + draw(st.sampled_from(["", "\n", "\n\n"]))
    text = draw(st.sampled_from(["", '"""Docs."""\n', "# Copyright\n\n"])) + text
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    head, encoding = draw(
        st.sampled_from([("", "utf-8"), ("\ufeff", "utf-8"), ("# -*- coding: latin-1 -*-\n", "latin-1")])
    )
    return (head + text).encode(encoding)


@SETTINGS
@given(modules())
def test_twice_is_once_and_the_result_parses(data: bytes) -> None:
    migrate({"pkg/module.py": data}, Options(unsafe_fixes=True))


@SETTINGS
@given(modules())
def test_nothing_outside_the_edits_moves(data: bytes) -> None:
    made, _ = planned({"pkg/module.py": data}, Options())
    new = migrate({"pkg/module.py": data}).files["pkg/module.py"]
    position, rest = 0, new
    for edit in sorted(made.edits, key=lambda edit: (edit.start, edit.end)):
        kept = data[position : edit.start]
        assert rest.startswith(kept + edit.replacement)
        rest = rest[len(kept) + len(edit.replacement) :]
        position = edit.end
    assert rest == data[position:]
    touched = b"".join(data[edit.start : edit.end] for edit in made.edits)
    assert b"x = 1" not in touched
    assert b"# a comment" not in touched or b"from verl" in touched or b"import verl" in touched


@SETTINGS
@given(modules())
def test_what_a_file_binds_stays_bound(data: bytes) -> None:
    new = migrate({"pkg/module.py": data}).files["pkg/module.py"]
    assert _bound(new) >= _bound(data) - {"verl"}
    endings = [data.count(b"\r\n"), data.count(b"\n") - data.count(b"\r\n")]
    assert (new.count(b"\r\n") > 0) <= (endings[0] > 0)
    assert data.endswith(b"\n") == new.endswith(b"\n") or not new.strip()


def _bound(data: bytes) -> set[str]:
    """The names that a file's imports bind, wherever they stand."""
    imports = [node for node in ast.walk(ast.parse(data)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
