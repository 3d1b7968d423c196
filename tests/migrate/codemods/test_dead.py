"""Branches of patches that never run on what a project asks for go, with their guard."""

from __future__ import annotations

from textwrap import dedent

import pytest
from planning import migrate

from mcore_unpatch.editing.edits import Options
from mcore_unpatch.editing.refusals import Refusal
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
    "an if by a value of its own": (
        f"""
        def install():
            is_old, kind = {OLD}, 1
            old = {OLD}
            if old:
                Attention.forward = forward
            print(is_old, kind)
        """,
        f"""
        def install():
            is_old, kind = {OLD}, 1
            print(is_old, kind)
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
    "an if with an else, in one line": (
        f"""
        def install():
            if {OLD}:
                Attention.forward = forward; print("old")
            else: print("new")
        """,
        """
        def install():
            print("new")
        """,
    ),
    "with what is around it": (
        f"""
        def install(kind):
            if kind:
                if {OLD}:
                    if kind > 1:
                        Attention.forward = forward
                    Attention.backward = forward
                print("done")
        """,
        """
        def install(kind):
            if kind:
                print("done")
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
    "behind an exit": f"""
        def install():
            if {NEW}:
                return
            Attention.forward = forward
        """,
    "one that others follow": f"""
        def install(kind):
            if {OLD}:
                Attention.forward = forward
            elif kind == 1:
                print("one")
        """,
    "all that a function does": f"""
        def install():
            if {OLD}:
                Attention.forward = forward
        """,
    "a failed import": """
        def install():
            try:
                from megatron.core.transformer.moe.router_replay import RouterReplay
            except ImportError:
                Attention.forward = forward
        """,
    "a test that binds a name": f"""
        def install():
            print("on")
            if (old := {OLD}):
                Attention.forward = forward
        """,
}


@pytest.mark.parametrize("body", STAYING.values(), ids=STAYING)
def test_what_stays(body: str) -> None:
    assert rewritten(body, options((0, 18), unsafe=True)) == ""


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


def test_what_stays_says_why() -> None:
    """By its form, or because which Megatron runs is a guess."""
    before = f"{dedent(HEAD).strip()}\n\n\n{dedent(STAYING['behind an exit']).strip()}\n".encode()
    for chosen, why in ((options((0, 18)), Refusal.FORM), (options(), Refusal.UNKNOWN)):
        assert [left.kind for left in migrate({"m.py": before}, chosen).plan.left.values()] == [why]
