"""Imports that a newer release fails, where a `try` of the repository catches that."""

import pytest
from checking import releases

from mcore_unpatch.judge.statement import CHANGES, RAISES
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


@pytest.mark.parametrize(("handler", "more", "kind"), [
    ("print()", "", CHANGES),
    ("try: from megatron.utils import unwrap_model\n    except ImportError: print()", "", CHANGES),
    ("from megatron.training.global_vars import unwrap_model", "", CHANGES),
    ("try: from megatron.core.utils import unwrap_model\n    except ImportError: print()", "", ""),
    ("from elsewhere import unwrap_model", "", ""),
    ("from megatron.legacy import unwrap_model", "", ""),  # which a checkout may have, and no wheel
    ("HAVE = False", "", CHANGES),  # others may ask for it before they call
    ("print()", "from elsewhere import unwrap_model", CHANGES),
    ("unwrap_model = None", "", CHANGES),
])  # fmt: skip
def test_an_import_that_fails_unseen_is_told(handler: str, more: str, kind: str) -> None:
    text = f"try:\n    from megatron.training.utils import unwrap_model\nexcept ImportError:\n    {handler}\n{more}\n"
    text += "def save(model):\n    return unwrap_model(model)\n"
    project = Project({"a.py"}.__contains__, lambda _: text.encode())
    said = list(uses_of(["a.py"], project, *releases("0.17.1", "0.19.2")).affected)
    assert [one.kind for one in said if one.line == 2] == ([kind] if kind else [])
