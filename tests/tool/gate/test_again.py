"""The check of a migration: what a file gave counts again, unless it read something that is other now."""

import pytest

from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.survey.parallel import ScannedPart, Task, analyse
from mcore_unpatch.survey.remembered import LastSearch

PATCH = "from megatron.core.models.gpt import GPTModel\n"
FILES = {
    "model.py": f"{PATCH}model = GPTModel()\nother = 3\n",
    "between.py": "from model import model, other\n",
    "unread.py": "import between\n",
    "patch.py": f"{PATCH}from between import model\nmodel.forward = print\n",
    "reads.py": "import model\nout.output_layer = print\n",
    "puts.py": "def put(cls, name, value):\n    setattr(cls, name, value)\n",
    "pkg/__init__.py": "from puts import put\nfrom .idle import hold\n",
    "calls.py": f"{PATCH}from pkg import put\nput(GPTModel, 'forward', print)\n",
    "pkg/idle.py": "def hold(cls, name, value): ...\n",
    "holds.py": f"{PATCH}from pkg import hold\nhold(GPTModel, 'forward', print)\n",
    "tests/fakes.py": "import sys\nsys.modules['megatron.legacy'] = fake\n",
    "tests/test_it.py": f"import fakes\n{PATCH}GPTModel.forward = print\n",
    "alone.py": f"{PATCH}GPTModel.forward = print\n",
}


def analysed(files: dict[str, str], last: LastSearch, changed: list[str]) -> list[str]:
    """The files that are analysed, with the others as before; the findings are those of a whole analysis."""
    task = Task(lambda path: files[path].encode(), {*files, "pkg", "tests"}.__contains__, lambda _: ((0, 19),), False)
    whole, asked = last.but(changed, task.project(), None).recall(sorted(files))
    for part in analyse(asked, [0] * len(asked), task, 1, Parsed()):
        whole.add(part)
    last.keep(whole)
    everything = ScannedPart()
    for part in analyse(sorted(files), [0] * len(files), task, 1, Parsed()):
        everything.add(part)
    assert sorted(whole.findings, key=lambda one: one.sort_key) == everything.findings
    return asked


@pytest.mark.parametrize(
    ("changed", "text", "reached"),
    [
        ("alone.py", "", {"alone.py"}),
        ("model.py", f"{PATCH}model = object()\nother = 3\n", {"model.py", "between.py", "patch.py"}),
        ("model.py", "model = other = 3\n", {"model.py", "between.py", "patch.py", "unread.py", "reads.py"}),
        ("puts.py", "def put(cls, name, value): ...\n", {"puts.py", "pkg/__init__.py", "calls.py", "holds.py"}),
        (
            "pkg/idle.py",
            FILES["puts.py"].replace("put", "hold"),
            {"pkg/idle.py", "pkg/__init__.py", "calls.py", "holds.py"},
        ),
        ("tests/fakes.py", "import sys\nsys.modules['megatron.core'] = fake\n", {"tests/fakes.py", "tests/test_it.py"}),
    ],
)
def test_what_is_looked_at_again(changed: str, text: str, reached: set[str]) -> None:
    last = LastSearch()
    assert set(analysed(FILES, last, [])) == set(FILES)
    assert set(analysed({**FILES, changed: text}, last, [changed])) == reached
    assert analysed(FILES, last, []) == []


def test_a_file_that_was_not_there() -> None:
    last = LastSearch()
    analysed(FILES, last, [])
    new = {**FILES, "fakes.py": "import sys\n"}
    assert set(analysed(new, last, ["fakes.py"])) == set(new)
