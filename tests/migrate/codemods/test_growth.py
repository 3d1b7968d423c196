"""Worst cases for a plan: eight times the input costs about eight times the work, never its square."""

from collections.abc import Callable

import pytest

from mcore_unpatch.codemods.planner import plan
from mcore_unpatch.codemods.testing import findings as found
from mcore_unpatch.editing.edits import Options, Repository
from tests.tool.robustness.test_growth import check_growth, scan_of

pytestmark = pytest.mark.growth
PATH = "verl/models/mcore/mtp_patch.py"
DEFINITION = "def patch_postprocess(model):\n    return model\n"
MODULE = "verl.models.mcore.mtp_patch"

USERS: dict[str, Callable[[int], str]] = {
    "imports of names": lambda n: f"from {MODULE} import patch_postprocess\n" * n,
    "imports of a module": lambda n: f"import {MODULE}\n" * n + f"{MODULE}.patch_postprocess(a)\n" * n,
    "imports under names": lambda n: "".join(f"import {MODULE} as m{i}\nm{i}.patch_postprocess(a)\n" for i in range(n)),
    "other imports": lambda n: (
        f"from {MODULE} import patch_postprocess\n" + "".join(f"import a{i}\n" for i in range(n))
    ),
    "uses": lambda n: f"import {MODULE} as m\n" + "m.patch_postprocess(a)\n" * n,
    "modules handed on": lambda n: f"import {MODULE} as m\n" + "f(m)\n" * n,
    "texts": lambda n: f"mock.patch('{MODULE}.patch_postprocess')\n" * n,
    "a long text": lambda n: f"import {MODULE}\nx = '{'mtp_patch.' * n}x'\n",
    "a long line": lambda n: f"import {MODULE} as m\n" + "m.patch_postprocess(a);" * n + "\n",
}


@pytest.mark.parametrize("name", USERS)
def test_users(name: str) -> None:
    def work(size: int) -> Callable[[], object]:
        files = {PATH: DEFINITION.encode(), "verl/a.py": USERS[name](size).encode()}
        return lambda: plan(
            Repository(list(files), files.__contains__, files.__getitem__), found(files, Options()), Options()
        )

    check_growth(work, 100)


def test_functions_that_lead_to_each_other() -> None:
    def work(size: int) -> Callable[[], object]:
        text = DEFINITION + "".join(f"def _f{i}(): return _f{i + 1}(), patch_postprocess\n" for i in range(size))
        files = {PATH: text.replace("return model", "return _f0()").encode()}
        return lambda: plan(
            Repository(list(files), files.__contains__, files.__getitem__), found(files, Options()), Options(True)
        )

    check_growth(work, 100)


@pytest.mark.parametrize(
    "patch",
    [
        "GPTModel._postprocess = g\n",
        "def f(self, input_ids): return log_probs\nGPTModel.forward = f\n",
        "def f(m):\n    def new(self, x): return x, None\n    m.output_layer.forward = new\n",
    ],
)
def test_findings(patch: str) -> None:
    def work(size: int) -> Callable[[], object]:
        text = "from megatron.core.models.gpt import GPTModel\n" + patch * size
        found = scan_of({"a.py": text}).findings
        repository = Repository(["a.py"], {"a.py"}.__contains__, {"a.py": text.encode()}.__getitem__)
        return lambda: plan(repository, found, Options(True))

    check_growth(work, 50)
