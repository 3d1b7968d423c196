"""Imports that a newer release fails, where a `try` of the repository catches that."""

import pytest
from checking import releases

from mcore_unpatch.judge.statement import CHANGES, RAISES
from mcore_unpatch.library.build import build
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

CAUGHT = """\
try:
    from megatron.core.transformer.custom_layers.transformer_engine import TENorm, TELinear
    HAVE = True
except ImportError:
    {}
"""


def test_an_import_that_is_caught_is_told_unless_something_takes_its_place() -> None:
    said = []
    for handler in (
        "HAVE = False",
        "raise",
        "TENorm = None",
        "TENorm = None\nif TENorm is not None: print(TENorm)",
        "from megatron.core.extensions.transformer_engine import TENorm",
    ):
        text = CAUGHT.format(handler).encode()
        project = Project({"a.py"}.__contains__, lambda _, text=text: text)  # type: ignore[misc]
        said.append(list(uses_of(["a.py"], project, *releases("0.16.1", "0.19.2")).affected))
    assert [[one.kind for one in some] for some in said] == [[CHANGES], [RAISES, RAISES], [CHANGES], [], []]
    assert said[0][0].sentence == (
        "`transformer_engine.TENorm` and 1 more do not exist after megatron-core 0.16.1: the `try` on line 1 hides "
        "that, and what needs it does not run, or raises later; it is now "
        "`megatron.core.extensions.transformer_engine.TENorm`"
    )


def test_what_a_caught_import_is_now_is_told_with_the_call_that_does_not_fit() -> None:
    head = "try:\n    from megatron.training.utils import get_batch_on_this_cp_rank\n    ok = 1\nexcept ImportError:\n"
    for call, more in (("batch", ", but the call on line 7 does not pass `is_hybrid_cp`"), ("batch, False", "")):
        text = f"{head}    HAVE = False\ndef take(batch):\n    get_batch_on_this_cp_rank({call})\n".encode()
        project = Project({"a.py"}.__contains__, lambda _, text=text: text)  # type: ignore[misc]
        (said,) = uses_of(["a.py"], project, *releases("0.17.1", "0.19.2")).affected
        assert said.kind == CHANGES
        assert said.instead.removesuffix(", which that requires") == (
            f"it is now `megatron.core.utils.get_batch_on_this_cp_rank`{more}"
        )


@pytest.mark.parametrize(("handler", "more", "kind"), [
    ("print()", "", RAISES),
    ("try: from megatron.utils import unwrap_model\n    except ImportError: print()", "", RAISES),
    ("from megatron.training.global_vars import unwrap_model", "", RAISES),
    ("try: from megatron.core.utils import unwrap_model\n    except ImportError: print()", "", ""),
    ("from elsewhere import unwrap_model", "", ""),
    ("from megatron.legacy import unwrap_model", "", ""),  # which a checkout may have, and no wheel
    ("HAVE = False", "", CHANGES),  # others may ask for it before they call
    ("print()", "from elsewhere import unwrap_model", CHANGES),
    ("unwrap_model = None", "", CHANGES),
])  # fmt: skip
def test_who_asks_for_what_was_not_imported_raises(handler: str, more: str, kind: str) -> None:
    text = f"try:\n    from megatron.training.utils import unwrap_model\nexcept ImportError:\n    {handler}\n{more}\n"
    text += "def save(model):\n    return unwrap_model(model)\n"
    project = Project({"a.py"}.__contains__, lambda _: text.encode())
    said = list(uses_of(["a.py"], project, *releases("0.17.1", "0.19.2")).affected)
    assert [one.kind for one in said if one.line == 2] == ([kind] if kind else [])
    if kind == RAISES:
        assert (said[0].exception, said[0].trigger) == ("NameError", "when `save` is called")
        assert f"hides that, and line {text.count(chr(10))} asks for it" in said[0].text


def test_what_runs_once_a_caught_import_is_mended_is_told_with_it() -> None:
    text = b"""\
from megatron.core.package_info import MAJOR, MINOR
try:
    from megatron.core.transformer.custom_layers.transformer_engine import TENorm
    HAVE = True
except ImportError:
    HAVE = False
if HAVE:
    from megatron.core.transformer.custom_layers.transformer_engine import TELinear
if not HAVE:
    from megatron.core.transformer.custom_layers.transformer_engine import TELinear
def later():
    if not HAVE:
        return
    from megatron.core.transformer.custom_layers.transformer_engine import TELinear
def never():
    if HAVE and (MAJOR, MINOR) < (0, 17):
        from megatron.core.transformer.custom_layers.transformer_engine import TELinear
"""
    project = Project({"a.py"}.__contains__, lambda _: text)
    said = list(uses_of(["a.py"], project, *releases("0.16.1", "0.19.2")).affected)
    raising, caught, *woken = sorted(said, key=lambda one: (not one.will_raise, one.line))
    assert (raising.line, caught.line) == (10, 3)
    assert [(one.line, one.kind) for one in woken] == [(8, CHANGES), (14, CHANGES)]
    assert woken[0].sentence == (
        "`transformer_engine.TELinear` does not exist after megatron-core 0.16.1: ModuleNotFoundError once "
        "the imports of the `try` on line 2 work again; it is now "
        "`megatron.core.extensions.transformer_engine.TELinear`"
    )


def test_a_name_that_is_set_elsewhere_does_not_bring_its_module() -> None:
    files = {
        "a.py": b"from megatron.training.tokenizer import build_tokenizer\n",
        "b.py": b"from megatron.training import global_vars\nglobal_vars.build_tokenizer = None\n",
    }
    project = Project(files.__contains__, files.__getitem__)
    said = list(uses_of(files, project, *releases("0.16.1", "0.19.2")).affected)
    assert [(one.path, one.exception) for one in said] == [("a.py", "ModuleNotFoundError")]


def test_a_source_that_lacks_what_its_release_has_is_no_older_one() -> None:
    source = build(LIBRARY, "0.19.2", [("megatron/core/__init__.py", b"")])
    text = b"from megatron.core.models.gpt import GPTModel\n"
    project = Project({"a.py"}.__contains__, lambda _: text)
    (said,) = uses_of(["a.py"], project, *releases("0.19.2"), source).affected
    assert "`gpt.GPTModel` does not exist in this source of megatron-core 0.19.2" in said.text
