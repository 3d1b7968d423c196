"""What never runs goes with its helpers, its calls and its imports, and where it stays the reason is told."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from planning import migrate
from test_dead import HEAD, OLD, options, rewritten

from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.survey import ScanOptions

ZERO_LAYERS = """
def install():
    from megatron.core.models.gpt.gpt_model import GPTModel

    print("on")
    original = GPTModel._postprocess

    def new(self, *args, **kwargs):
        kept = self.config.mtp_num_layers
        self.config.mtp_num_layers = None
        try:
            return original(self, *args, **kwargs)
        finally:
            self.config.mtp_num_layers = kept

    # 0 layers are none.
    GPTModel._postprocess = new
"""


def test_what_megatron_does_by_itself_goes_with_its_helpers() -> None:
    assert rewritten(ZERO_LAYERS, options((0, 18), (0, 18), unsafe=True)).strip() == 'def install():\n    print("on")'
    assert rewritten(ZERO_LAYERS, options((0, 18), (0, 18))) == ""  # only if asked for
    assert rewritten(ZERO_LAYERS, options((0, 16), (0, 16), unsafe=True, target=(0, 16))) == ""  # needed there
    put_back = f"{ZERO_LAYERS}\n    yield\n    GPTModel._postprocess = original\n"
    assert rewritten(put_back, options((0, 18), (0, 18), unsafe=True)) == ""


def test_a_deletion_asks_for_no_release() -> None:
    """No Megatron in use needs what goes."""
    never_runs = f"{HEAD}\n\ndef install():\n    if {OLD}:\n        Attention.forward = print\n    print()\n"
    for text, goes in ((ZERO_LAYERS, True), (never_runs, True), (never_runs.replace("<", "!="), False)):
        made = migrate({"m.py": text.encode()}, options((0, 18), (0, 18), unsafe=True)).plan
        assert (made.requirement, bool(made.edits)) == (None, goes)


def test_it_goes_beside_what_never_runs() -> None:
    """Both empty their functions: in one file they are deleted together."""
    last = "def last():\n    return 1"
    alone = ZERO_LAYERS.replace('    print("on")\n', "")
    older = f"def older():\n    from packaging import version\n\n    if {OLD}:\n        Attention.forward = print\n"
    whole = f"{alone}\n\n{older}\n\n{last}"
    assert rewritten(whole, options((0, 18), (0, 18), unsafe=True)).strip() == last
    assert rewritten(whole, options((0, 18), (0, 18))).strip().endswith(f"new\n\n\n{last}")


LINE = 'setattr(TransformerBlock, "_checkpointed_forward", lambda *args: None)'
GONE = """
def new(self, *args):
    print(args)


def install():
    from megatron.core.transformer.transformer_block import TransformerBlock

    TransformerBlock._checkpointed_forward = lambda *args: None
    print("on")
"""
PLAIN = "TransformerBlock._checkpointed_forward = lambda *args: None"


def test_what_patches_a_name_that_is_gone_goes_unless_the_repository_calls_it() -> None:
    chosen = options((0, 19), (0, 19), unsafe=True, target=(0, 19))
    assert "_checkpointed_forward" not in rewritten(GONE, chosen)
    for value in ("new", "lambda block: block", "make(new)"):  # which did more: that is lost, and a person is told
        text = GONE.replace("lambda *args: None", value)
        assert rewritten(text, chosen) == ""
        [finding] = migrate({"pkg/a.py": (HEAD + text).encode()}, chosen).before
        assert finding.verdict == "steps"
        assert "nothing calls the patch, and what it does is lost" in finding.evidence
    assert rewritten(f"{GONE}\n\ndef run(block):\n    return block._checkpointed_forward()\n", chosen) == ""
    assert rewritten(GONE.replace("_checkpointed_forward", "__call__"), chosen) == ""


def test_a_try_that_is_left_empty_goes() -> None:
    chosen = options((0, 19), (0, 19), unsafe=True, target=(0, 19))
    lines = GONE.strip().splitlines()
    inner = [f"    {line}" for line in lines[5:8]]
    text = "\n".join([*lines[:5], "    try:", *inner, "    except ImportError:", "        pass", lines[8]])
    assert rewritten(text, chosen).strip().endswith('def install():\n    print("on")')


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ("\n\ndef run(block):\n    return block._checkpointed_forward()\n", "also named elsewhere in this file"),
        ("\n\ndef undo(block, old):\n    block.x = new\n", ""),
    ],
)
def test_what_is_not_deleted_says_why(more: str, because: str) -> None:
    chosen = options((0, 19), (0, 19), unsafe=True, target=(0, 19))
    result = migrate({"pkg/a.py": (HEAD + GONE + more).encode()}, chosen)
    said = [remark.text for remark in result.plan.remarks if remark.text.startswith("Not deleted: ")]
    assert [because in text for text in said] == ([True] if because else [])


def test_scan_says_why_it_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(HEAD + GONE.replace(PLAIN, LINE))
    (finding,) = scan([tmp_path], ScanOptions(fixes=True, target=(0, 19))).findings
    assert finding.verdict == "delete"
    assert finding.evidence.endswith(" Not deleted: it is not a plain assignment.")


def test_a_function_that_would_be_empty_goes_with_its_calls_and_imports() -> None:
    """And with the guard, the mark and the import that only it had; those that call others stay."""
    patch = f"""{dedent(HEAD).strip()}

def install():
    \"\"\"For 0.15.\"\"\"
    if getattr(Attention, "_ours", False):
        return
    if {OLD}:
        Attention.forward = forward
    Attention._ours = True


def other():
    print("on")
"""
    caller = """from pkg.patch import install, other

other()
if True:
    install()


def setup(config):
    import os

    if config.old and os.sep:
        from pkg import patch

        patch.install()
    return config


def only():
    from pkg.patch import install as run

    run()


only()
try:
    from pkg.patch import install

    install()
    from os import path
except ImportError:
    raise
"""
    files = {
        "pkg/__init__.py": b"from .patch import install\n",
        "pkg/patch.py": patch.encode(),
        "a.py": caller.encode(),
    }
    result = migrate(files, options((0, 18)))
    assert result.files["pkg/patch.py"].decode() == 'def other():\n    print("on")\n'
    assert result.files["pkg/__init__.py"] == b""
    assert result.files["a.py"].decode() == (
        "from pkg.patch import other\n\nother()\n\n\ndef setup(config):\n    return config\n\n\n"
        "try:\n    from os import path\nexcept ImportError:\n    raise\n"
    )


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("from m import install\n\nrun(install)\n", "other.py, line 3 names it"),
        ("import m\n\nx = m.install()\n", "other.py, line 3 names it"),
        ("from m import install\n\n__all__ = ['install']\n", "other.py, line 3 names it"),
    ],
)
def test_a_function_that_others_hold_is_not_emptied(text: str, because: str) -> None:
    before = f"{dedent(HEAD).strip()}\n\n\ndef install():\n    if {OLD}:\n        Attention.forward = forward\n"
    result = migrate({"m.py": before.encode(), "other.py": text.encode()}, options((0, 18)))
    assert result.files["m.py"].decode() == before
    [said] = [one.text for one in result.plan.remarks]
    assert said.startswith(f"Not deleted: `install` would be empty then, and {because}. It never runs on")


def test_nothing_is_deleted_while_no_release_is_named() -> None:
    """As slime's for older releases: nothing of the newest Megatron reads it, what runs may."""
    name = "parallel_state.is_inside_encoder"
    text = f"from megatron.core import parallel_state\n\n{name} = lambda: False\n"
    chosen = options(unsafe=True, target=(0, 19))
    kept = migrate({"m.py": text.encode()}, chosen)
    assert kept.before[0].verdict == "delete"
    assert kept.files["m.py"].decode() == text
    assert kept.plan.remarks[0].text.startswith("Not deleted: which Megatron runs here is not known: name it in a ")
    pinned = migrate({"m.py": text.encode()}, options((0, 19), (0, 19), unsafe=True, target=(0, 19)))
    assert b"is_inside_encoder" not in pinned.files["m.py"]


def test_a_file_that_cannot_be_imported_on_the_judged_release_is_left() -> None:
    """It is for an older Megatron, whatever could be deleted or rewritten in it for this one."""
    line = "from megatron.training.utils import get_batch_on_this_cp_rank\n"
    text = f"{line}from megatron.core import parallel_state\n\nparallel_state.is_inside_encoder = lambda: False\n"
    result = migrate({"m.py": text.encode()}, options((0, 19), (0, 19), unsafe=True, target=(0, 19)))
    assert not result.plan.edits
    [said] = [one.text for one in result.plan.remarks]
    missing = "megatron-core 0.19 has no `get_batch_on_this_cp_rank`, which line 1 imports"
    assert said.startswith(f"Not deleted: {missing}: the file is for another release. ")
    inside = text.removeprefix(line).replace("\nparallel_state.", f"\ndef f():\n    {line}    parallel_state.")
    result = migrate({"m.py": inside.encode()}, options((0, 19), (0, 19), unsafe=True, target=(0, 19)))
    assert not result.plan.edits
    assert "which line 4 imports: the function is for another release. " in result.plan.remarks[0].text
    lazy = f"def f():\n    {line}\n\n{text.removeprefix(line)}"
    assert migrate({"m.py": lazy.encode()}, options((0, 19), (0, 19), unsafe=True, target=(0, 19))).plan.edits


def test_an_edit_is_told_by_the_rule_of_what_it_is_for() -> None:
    """Not by that of another finding in the same file, which goes too."""
    patch = f"{HEAD}\n\ndef install():\n    if {OLD}:\n        Attention.forward = forward\n"
    critic = """from heads import LastLayer
from megatron.core.models.gpt.gpt_model import GPTModel
from pkg.patch import install


def critic(model: GPTModel, config):
    install()
    model.output_layer = LastLayer(config.hidden_size, 1)
"""
    chosen = options((0, 18), (0, 18), unsafe=True)
    result = migrate({"pkg/patch.py": patch.lstrip().encode(), "pkg/critic.py": critic.encode()}, chosen)
    dead = next(one for one in result.before if one.target.endswith("Attention.forward"))
    rules = {edit.title: edit.rule for edit in result.plan.edits if edit.path == "pkg/critic.py"}
    assert (
        rules["deletes the branch of a patch that never runs on Megatron Core 0.18 or later"] == dead.rule != "MCU501"
    )
    assert "MCU501" in rules.values()
