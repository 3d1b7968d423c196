"""Uses of a Megatron of a few lines, and what the step to its next release does to each."""

from pathlib import Path

from checking import small_release
from forms import check_forms

from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

FORMS, LIBRARIES = (Path(__file__).parent / name for name in ("asked.txt", "asked_of.txt"))
LIBRARY = "megatron.core."
HEAD = "from megatron.core import utils\n"


def test_what_the_step_does_to_every_use() -> None:
    check_forms(FORMS, statements_on)


def statements_on(codes: list[str]) -> list[str]:
    """What the step does to each piece of code, in a file of its own, between the two releases of asked_of.txt."""
    sources = [text.partition("\n") for text in LIBRARIES.read_text().split("### ")[1:]]
    models = [small_release(label, *text.split("# elsewhere\n")) for label, _, text in sources]
    bodies = [code if "\n" in code else f"def case(x, y):\n    {code}" for code in codes]
    files = {f"{number:03}.py": f"{HEAD}{code}\n".encode() for number, code in enumerate(bodies)}
    said = dict.fromkeys(files, "")
    for one in uses_of(list(files), Project(files.__contains__, files.__getitem__), *models).affected:
        said[one.path] += f" {one.exception or one.kind} {one.name.removeprefix(LIBRARY)};"
    return list(said.values())


def test_a_switch_that_nobody_set_is_off() -> None:
    """None before and False now is no change of a field; of a parameter None may mean another thing."""
    old = b"class Config:\n    def __init__(self, kept=None, on=None): pass\ndef run(kept=None): pass\n"
    new = old.replace(b"kept=None", b"kept=False").replace(b"on=None", b"on=True")
    models = [small_release(label, text.decode()) for label, text in (("0.30.0", old), ("0.31.0", new))]
    text = f"{HEAD}def case():\n    utils.Config()\n    utils.run()\n".encode()
    said = uses_of(["a.py"], Project({"a.py"}.__contains__, lambda _: text), *models).affected
    assert [(one.line, one.text.partition(" of ")[0]) for one in said] == [(3, "`on`"), (4, "`kept`")]
