"""Patches that never run on what a project asks for go, with their guard and with what only they used."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from forms import check_forms
from planning import migrate, planned

from mcore_unpatch.editing.edits import Options, splice
from mcore_unpatch.megatron.versions import Version

HEAD = """
import megatron.core
from megatron.core.transformer.attention import Attention
from packaging import version
"""


def options(*pinned: Version, unsafe: bool = False, target: Version = (0, 18)) -> Options:
    return Options(unsafe_fixes=unsafe, target=target, pinned=lambda _: pinned)


def rewritten(body: str, chosen: Options) -> str:
    """What becomes of a file, without the imports at its top; nothing where it stays."""
    before = f"{dedent(HEAD).strip()}\n\n\n{dedent(body).strip()}\n"
    new = migrate({"m.py": before.encode()}, chosen).files["m.py"].decode()
    start = new.index("def ")
    return new[start:] if new != before else ""


OLD = 'version.parse(megatron.core.__version__) < version.parse("0.16.0")'
NEW = 'version.parse(megatron.core.__version__) >= version.parse("0.16.0")'

CASES = {
    "an if": (
        f"""
        def install():
            print("on")

            # For 0.15 alone.
            if {OLD}:
                Attention.forward = forward

            print("done")
        """,
        """
        def install():
            print("on")

            print("done")
        """,
    ),
    "an else": (
        f"""
        def install():
            if {NEW}:
                # As it is now.
                print("new")
                print("newer")
            else:
                Attention.forward = forward
        """,
        """
        def install():
            # As it is now.
            print("new")
            print("newer")
        """,
    ),
    "an if with an else": (
        f"""
        def install():
            if {OLD}: Attention.forward = forward
            else: print("new")  # why
        """,
        """
        def install():
            print("new")  # why
        """,
    ),
    "the first of several": (
        f"""
        def install(kind):
            if {OLD}:
                Attention.forward = forward
            elif kind == 1:
                print("one")
        """,
        """
        def install(kind):
            if kind == 1:
                print("one")
        """,
    ),
    "behind an exit, with its helpers": (
        f"""
        def _helper():
            return 1


        def install():
            print("on")
            recent = {NEW}
            if recent:
                return

            def forward(self):
                return _helper()

            Attention.forward = forward
        """,
        """
        def install():
            print("on")
        """,
    ),
    "all that a function does": (
        f"""
        def install():
            if {OLD}:
                Attention.forward = forward


        def other():
            return 1
        """,
        """
        def other():
            return 1
        """,
    ),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_a_dead_branch_goes(before: str, after: str) -> None:
    assert rewritten(before, options((0, 18))) == dedent(after).lstrip()
    assert rewritten(before, options((0, 18), (0, 19))) == dedent(after).lstrip()


@pytest.mark.parametrize("pinned", [((0, 15),), ((0, 14), (0, 19))], ids=["0.15", "0.14 or later"])
def test_a_branch_that_may_run_stays(pinned: tuple[Version, ...]) -> None:
    assert rewritten(CASES["an if"][0], options(*pinned)) == ""


def test_while_no_release_is_named_the_branch_for_another_stays() -> None:
    """The guard is the list of what the author supports: the newest release is a guess."""
    before, _ = CASES["an if"]
    assert rewritten(before, options()) == ""
    assert rewritten(before, options(unsafe=True)) == ""


STAYING = {
    "for the next release": """
        def install():
            if version.parse(megatron.core.__version__) > version.parse("0.99"):
                Attention.forward = forward
        """,
    "one of several": f"""
        def install(kind):
            if kind == 1:
                print("one")
            elif {OLD}:
                Attention.forward = forward
        """,
    "a test that does something": f"""
        def install():
            if register() and {OLD}:
                Attention.forward = forward
        """,
    "a module that needs another package": """
        def install():
            try:
                from megatron.core.ssm.mamba_mixer import rearrange
            except ImportError:
                Attention.forward = forward
        """,
    "an exit that asks for something else": """
        def install(mode):
            if mode == "hook":
                return
            Attention.forward = forward
        """,
}


@pytest.mark.parametrize("body", STAYING.values(), ids=STAYING)
def test_what_stays(body: str) -> None:
    assert rewritten(body, options((0, 18), unsafe=True)) == ""


def test_a_helper_that_others_use_stays() -> None:
    body = f"""
        def _helper():
            return 1


        def public():
            return 1


        def install():
            if {OLD}:
                Attention.forward = (_helper, public)
            return _helper
        """
    new = rewritten(body, options((0, 18)))
    assert "Attention" not in new
    assert "def _helper" in new
    assert "def public" in new


def test_what_is_put_back_elsewhere_keeps_its_branch() -> None:
    """Without the branch, the line that puts the original back would be a patch of its own."""
    body = f"""
    def install(layer: Attention):
        original = layer.forward
        if {OLD}:
            layer.forward = forward
        try:
            run(layer)
        finally:
            layer.forward = original
    """
    assert rewritten(body, options((0, 18), unsafe=True)) == ""
    other = body.replace(
        "layer.forward = forward", "layer.forward = forward\n        else:\n            layer.forward = newer"
    )
    assert (
        rewritten(other, options((0, 18)))
        == dedent(  # another patch stays, for which it is put back
            body.replace(f"if {OLD}:\n            layer.forward = forward", "layer.forward = newer")
        ).lstrip()
    )


FLAGGED = f"""
    def install(layer: Attention, kept=False):
        original, patched = getattr(layer, "forward", None), None
        done = False
        if {OLD}:
            layer.forward = forward
            done = True
        try:
            run(layer)
        finally:
            if done:
                layer.forward = original
            clear(layer)
    """


def test_what_is_put_back_under_a_flag_keeps_its_branch() -> None:
    """Who asks the object at run time and puts back by a flag serves more Megatrons than are known here."""
    assert rewritten(FLAGGED, options((0, 18), unsafe=True)) == ""


LOOP = """
    def install(settings):
        if int(settings.get("context_parallel_size", 1)) <= 1:
            return
        ours = importlib.import_module("mindspeed.core.ssm.gated_delta_net")
        done = []
        for name in ("tensor_a2a_cp2hp", "tensor_a2a_hp2cp"):
            if hasattr(gated_delta_net, name):
                continue
            setattr(gated_delta_net, name, getattr(ours, name))
            done.append(name)
        if done:
            logger.info("%s", done)


    def start(settings):
        install(settings)
        run(settings)
    """


def test_a_loop_that_skips_every_name_goes_with_its_function() -> None:
    head = "import importlib\n\nfrom megatron.core.ssm import gated_delta_net\n\n\n"
    text = head + dedent(LOOP).strip() + "\n"
    new = migrate({"m.py": text.encode()}, options((0, 18))).files["m.py"].decode()
    assert new.endswith("def start(settings):\n    run(settings)\n")
    assert "install" not in new
    one_is_new = text.replace("tensor_a2a_hp2cp", "not_of_megatron")
    assert migrate({"m.py": one_is_new.encode()}, options((0, 18))).files["m.py"].decode() == one_is_new


def test_an_import_that_is_tried_for_it_alone_goes_too() -> None:
    body = f"""
        def install():
            try:
                from megatron.core.transformer.mlp import MLP
            except ImportError as error:
                raise RuntimeError("broken") from error

            if {OLD}:
                MLP.forward = print
            print("on")
        """
    assert rewritten(body, options((0, 18))).strip() == 'def install():\n    print("on")'


FORMS = Path(__file__).parent / "dead.txt"
AROUND = f"""{HEAD}
def forward(self): return self
def public(self): return 1
def _private(self): return 1
@print
def _decorated(self): return 1
def install(kind, ask):
"""


def test_every_form_becomes_what_somebody_read() -> None:
    """Bodies of a function in dead.txt, each with what is left of it, or why it stays."""
    check_forms(FORMS, lambda forms: map(left_of, forms))


def left_of(form: str) -> str:
    """The body without what is dead; or a sentence."""
    for word, text in (("PATCH", "Attention.forward = forward"), ("OLD", OLD), ("NEW", NEW)):
        form = form.replace(word, text)
    data = (AROUND + "".join(f"    {line}\n" for line in form.splitlines())).encode()
    plan, _ = planned({"m.py": data}, options((0, 18)))
    if not plan.edits:
        return " stays"
    before, install, body = splice(data, plan.edits).decode().partition("def install(kind, ask):\n")
    gone = {name for name in ("_private", "_decorated", "public") if f"def {name}" not in before}
    rest = "\n".join(line.removeprefix("    ") for line in body.rstrip("\n").split("\n"))
    rest = rest.replace(OLD, "OLD").replace(NEW, "NEW").replace("Attention.forward = forward", "PATCH")
    return "".join(f" {name} goes too;" for name in sorted(gone)) + (f"\n{rest}" if install else " all of it goes")
