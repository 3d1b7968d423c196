"""Megatron from before the hook: what needs it raises ImportError at the import, and all else works."""

import os
from pathlib import Path

import pytest
from downloads import unpacked
from downstream.importing import IMPORT, MEGATRON, NEEDS_HOOK, SHIMS, printed_in_forks, public_names


@pytest.mark.ranks
def test_without_the_hook_it_is_the_import_that_raises() -> None:
    beside = Path(__file__).parents[1]
    first = unpacked("megatron-core", "0.16.1")
    path = os.pathsep.join(map(str, (first, beside, beside.parent, *filter(None, [os.environ.get("PYTHONPATH")]))))
    others = public_names()
    names = [*SHIMS, *NEEDS_HOOK, *others]
    works = Path(__file__).with_name("before_the_hook.py").read_text()
    programs = [*(IMPORT.format(name=name) for name in names), works]
    *said, ran = printed_in_forks(MEGATRON, [(program, {}) for program in programs], PYTHONPATH=path)
    for asked, text in zip(names, said, strict=True):
        name = others.get(asked, asked)
        if name in (*SHIMS, *NEEDS_HOOK):
            assert text.startswith("ImportError: mcore_unpatch.compat.")
            assert "GPTModel.forward has no parameter output_processor (megatron-core 0.16.1); releases have it" in text
        else:
            assert text == "nothing", asked
    assert ran == "0.16.1: all work"
