"""Uses of a Megatron of a few lines, and what the step to its next release does to each, as somebody read it."""

from pathlib import Path

from mcore_unpatch.library.build import build
from mcore_unpatch.megatron.versions import LIBRARY
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.upgrade.uses import uses_of

TOLD = Path(__file__).parent / "asked.txt"
BETWEEN = "\n----\n"
HEAD = "from megatron.core import utils\n"
SHORT = {
    ", which megatron-core 0.31.0 does not take": ", not taken",
    " not in megatron-core 0.31.0": " gone",
    " on megatron-core 0.31.0": "",
    "megatron-core 0.31.0": "it",
}


def test_every_use_is_told_as_somebody_read() -> None:
    *libraries, uses = TOLD.read_text().split("### ")[1:]
    sources = [text.partition("\n") for text in libraries]
    models = [
        build(LIBRARY, label, [("megatron/core/__init__.py", b""), ("megatron/core/utils.py", text.encode())])
        for label, _, text in sources
    ]
    told = uses.removeprefix("used\n").removesuffix("\n")
    codes = [section.partition("\n=>")[0] for section in told.split(BETWEEN)]
    files = {f"{number:03}.py": f"{HEAD}{code}\n".encode() for number, code in enumerate(codes)}
    said = dict.fromkeys(files, "")
    for use in uses_of(list(files), Project(files.__contains__, files.__getitem__), *models).affected:
        one = use.statement
        text = f"{one.exception or one.kind}: {one.text}"
        text += f" {one.trigger}" if one.trigger not in {"", "when `case` is called"} else ""
        text += f" ({one.instead})" if one.instead else ""
        for words, fewer in SHORT.items():
            text = text.replace(words, fewer)
        said[use.path] += f" {text};"
    assert BETWEEN.join(f"{code}\n=>{said[path]}" for code, path in zip(codes, files, strict=True)) == told
