"""What keeps a patch from some releases, by line and branch, and what else it depends on, as it is written."""

import pytest
from rooms import RELEASES, names_of

from mcore_unpatch.code.reached import Guards
from mcore_unpatch.findings.finding import Live
from mcore_unpatch.patches.alive import alive
from mcore_unpatch.patches.find import Finder
from mcore_unpatch.patches.lives import live_of

HEAD = """\
import sys, torch, megatron.core
from packaging.version import Version
from megatron.core.models.gpt.gpt_model import GPTModel
OLD = Version(megatron.core.__version__) < Version("0.16")
MINE = "__mine__"
def f(self): ...
"""
FIRST = HEAD.count("\n") + 1


def live(code: str, *others: str) -> Live:
    """When the first patch of `a.py` runs; the other files are `b.py`, `c.py`."""
    names = names_of(dict(zip(["a.py", "b.py", "c.py"], [HEAD + code + "\n", *others], strict=False)))
    patch, guards = Finder(names).all()[0], Guards(names)
    found = Live(*live_of(guards, patch, RELEASES))
    on = [one.label for one, truth in zip(RELEASES, alive(guards, patch, RELEASES), strict=True) if truth is not False]
    assert on == [*found.releases, *([RELEASES[-1].label] if found.newer else [])]
    return found


OUTER, PUT = "<=0.15.3", "GPTModel.forward = f"
LONG = "    x = 1\n" * 50
REPLAY = "from megatron.core.transformer.moe.router_replay import RouterReplay"  # since 0.16
# The first line and the branch of what rules some releases out, counted from below the head; `!`: whatever the release.
GUARDS = {
    PUT: ("any", []),
    f"if OLD:\n    {PUT}": (OUTER, ["1 if"]),
    f"if OLD:\n    pass\nelse:\n    {PUT}": (">=0.16.0", ["1 else"]),
    f"if x:\n    pass\nelif OLD:\n    {PUT}": (OUTER, ["3 if"]),
    f"def g():\n    if OLD:\n        return\n    {PUT}": (">=0.16.0", ["2 after"]),
    f"def g():\n    assert OLD\n    {PUT}": (OUTER, ["2 after"]),
    f"try:\n    {REPLAY}\n    {PUT}\nexcept ImportError:\n    pass": (">=0.16.0", ["2 after", "1 try"]),
    f"try:\n    {REPLAY}\nexcept ImportError:\n    {PUT}": (OUTER, ["1 except"]),
    f"try:\n    {REPLAY}\nexcept ImportError:\n    pass\nelse:\n    {PUT}": (">=0.16.0", ["1 else"]),
    "OLD or setattr(GPTModel, 'forward', f)": (">=0.16.0", ["1 else"]),
    "setattr(GPTModel, 'forward', f) if OLD else None": (OUTER, ["1 if"]),
    f"if False:\n    {PUT}": ("none", ["1 if!"]),
    f"if not OLD:\n    if OLD:\n        {PUT}": ("none", ["2 if", "1 if"]),
    f"if int(getattr(x, 'count', 1) or 1) > 1:\n    {PUT}": ("any", []),  # what it is, is not known
    f"def g():\n    if OLD:\n        return\n{LONG}    {PUT}": (">=0.16.0", ["2 after"]),
    f"if Version(getattr(megatron.core, '__version__', '0')) >= Version('0.16'):\n    {PUT}": (">=0.16.0", ["1 if"]),
    f"def g():\n    {PUT}\nif OLD:\n    g()": (OUTER, ["3 call a.py"]),
    f"def g():\n    {PUT}\nif OLD:\n    g()\nif not OLD:\n    g()": ("any", []),
    f"def g():\n    {PUT}\nif OLD:\n    g()\nif OLD:\n    g()": (OUTER, []),  # neither call alone keeps it
    f"def g():\n    {PUT}\nif False:\n    g()": ("any", []),  # no question of the release
    "for m in sys.modules.values():\n    if hasattr(m, 'hadamard_transform'):\n        m.hadamard_transform = f": (
        ">=0.16.0",
        ["2 if", "3 loaded"],
    ),
}


@pytest.mark.parametrize("code", GUARDS)
def test_what_rules_releases_out(code: str) -> None:
    found = live(code)
    said = [f"{one.line - FIRST + 1} {one.branch}{'!' * one.always} {one.path}".strip() for one in found.guards]
    assert (str(found), said) == GUARDS[code]


def test_each_guard_knows_its_releases() -> None:
    found = live(f"if OLD:\n    if megatron.core.__version__ >= '0.13':\n        {PUT}")
    assert str(found) == ">=0.13.0,<=0.15.3"
    inner, outer = found.guards
    assert (inner.line, inner.end_line, inner.rules_out[-1]) == (FIRST + 1, FIRST + 2, "0.12.3")
    assert (outer.line, outer.end_line, outer.rules_out[0]) == (FIRST, FIRST + 2, "0.16.0")


def test_a_call_in_another_file() -> None:
    [guard] = live(f"def install():\n    {PUT}", "import a\nif a.OLD:\n    a.install()\n").guards
    assert (guard.path, guard.line, guard.end_line, guard.branch) == ("b.py", 2, 3, "call")


DEPENDS = {
    "use_x": "only if `use_x`",
    "not use_x": "only if not `use_x`",
    "not (use_x == 1)": "only if `use_x != 1`",
    "use_x or not use_y": "only if (`use_x` or not `use_y`)",
    "not (use_x or use_y in z)": "only if not `use_x` and `use_y not in z`",
    "use_x or isinstance(use_x, int)": "depends on `use_x`",  # that is not all
    "use_x or (use_y and use_z)": "depends on `use_x`, `use_y`, `use_z`",  # not on all of them
    "use_x and isinstance(use_x, int)": "only if `use_x`",
    "use_x and not OLD": "only if `use_x`",
    "use_x or OLD": "depends on `use_x`",  # not on every release
    "Version(torch.__version__) >= Version('2.8')": "only if `Version(torch.__version__) >= Version('2.8')`",
    "use_x and megatron.core.__version__ >= '1'": "",
    "OLD:\n      if OLD or use_x": "",  # where that would be asked the patch is not made
    "isinstance(use_x, int)": "",
    "use_x is None": "",
}
LEAVING = {
    "if use_x: return": "only if not `use_x`",
    "if not use_x: return": "only if `use_x`",
    "if use_x:\n        if use_y: return": "depends on `use_x`",
    "if use_x: return\n    else: print()": "only if not `use_x`",
    "if use_x: return\n    elif use_y: return": "depends on `use_x`",
    "if use_x: raise ValueError": "",  # that ends more
    "if use_x: return\n    if use_y: return": "only if not `use_x`; only if not `use_y`",
}
OF = {
    **{f"def install(use_x):\n    if {test}:\n        {PUT}": DEPENDS[test] for test in DEPENDS},
    f"@register(condition=_is_asked)\ndef install(context):\n    {PUT}": "only if `_is_asked()`",
    f"@register(condition=lambda context: use_x)\ndef install(context):\n    {PUT}": "only if `use_x`",
    f"def g():\n    if getattr(GPTModel.forward, MINE, 0) and x: return\n    setattr(f, MINE, True)\n    {PUT}": "",
    **{f"def install(use_x, use_y):\n    {above}\n    {PUT}": LEAVING[above] for above in LEAVING},
}


@pytest.mark.parametrize("code", OF)
def test_what_no_release_decides_is_told_as_it_is_written(code: str) -> None:
    assert "; ".join(live(code).depends) == OF[code]
