"""Uses of a Megatron of a few lines, and what the step to its next release does to each, as somebody read it."""

from pathlib import Path

from checking import releases, small_release
from forms import check_forms

from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

FORMS, LIBRARIES = (Path(__file__).parent / name for name in ("asked.txt", "asked_of.txt"))
HEAD = "from megatron.core import utils\n"
SHORT = {
    ", which megatron-core 0.31.0 does not take": ", not taken",
    " not in megatron-core 0.31.0": " gone",
    " on megatron-core 0.31.0": "",
    "megatron-core 0.31.0": "it",
}


def test_every_use_is_told_as_somebody_read() -> None:
    check_forms(FORMS, statements_on)


def statements_on(codes: list[str]) -> list[str]:
    """What is said of each piece of code, in a file of its own, between the two releases of asked_of.txt."""
    sources = [text.partition("\n") for text in LIBRARIES.read_text().split("### ")[1:]]
    models = [small_release(label, *text.split("# elsewhere\n")) for label, _, text in sources]
    files = {f"{number:03}.py": f"{HEAD}{code}\n".encode() for number, code in enumerate(codes)}
    said = dict.fromkeys(files, "")
    for one in uses_of(list(files), Project(files.__contains__, files.__getitem__), *models).affected:
        text = f"{one.exception or one.kind}: {one.text}"
        text += f" {one.trigger}" if one.trigger not in {"", "when `case` is called"} else ""
        text += f" ({one.instead})" if one.instead else ""
        for words, fewer in SHORT.items():
            text = text.replace(words, fewer)
        said[one.path] += f" {text};"
    return list(said.values())


def test_a_method_that_a_class_of_the_repository_replaces_tells_nothing_of_a_call() -> None:
    folder = "megatron.core.inference.text_generation_controllers.text_generation_controller"
    head = f"from {folder} import TextGenerationController\n"
    call = f"{head}def case(x: TextGenerationController):\n    x.tokenize_prompt('a', 2)\n"
    own = f"{head}class Ours(TextGenerationController):\n    def {{}}(self, prompt, image):\n        return prompt\n"
    for name, told in (("tokenize_prompt", []), ("other", ["a.py"])):
        files = {"a.py": call.encode(), "b.py": own.format(name).encode()}
        project = Project(files.__contains__, files.__getitem__)
        uses = uses_of(list(files), project, *releases("0.16.0", "0.19.2")).affected
        assert [use.path for use in uses if use.path == "a.py"] == told


def test_a_switch_that_nobody_set_is_off() -> None:
    """None before and False now is no change of a field; of a parameter None may mean another thing."""
    old = b"class Config:\n    def __init__(self, kept=None, on=None): pass\ndef run(kept=None): pass\n"
    new = old.replace(b"kept=None", b"kept=False").replace(b"on=None", b"on=True")
    models = [small_release(label, text.decode()) for label, text in (("0.30.0", old), ("0.31.0", new))]
    text = f"{HEAD}def case():\n    utils.Config()\n    utils.run()\n".encode()
    said = uses_of(["a.py"], Project({"a.py"}.__contains__, lambda _: text), *models).affected
    assert [(one.line, one.text.partition(" of ")[0]) for one in said] == [(3, "`on`"), (4, "`kept`")]
