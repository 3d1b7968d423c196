"""Tables of forms: pieces of code, each with the facts that come of it, as somebody read them.

A form of one line has its answer behind `=>` in the same line; a longer one has it below, in lines that begin with
`=>`. After a change that is meant, `APPROVE=1 pytest` of the test writes the answers anew: read the diff. A new form is
written into the file with nothing behind its `=>`.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

_BETWEEN = "\n----\n"  # of files that are not tables yet


def check_forms(file: Path, answer: Callable[[list[str]], Iterable[str]]) -> None:
    """Every form of a file has the answer that stands there."""
    text = file.read_text()
    if _BETWEEN in text:
        forms = [section.partition("\n=>")[0] for section in text.removesuffix("\n").split(_BETWEEN)]
        said = (
            _BETWEEN.join(f"{form}\n=>{answered}" for form, answered in zip(forms, answer(forms), strict=True)) + "\n"
        )
    else:
        forms = list(_forms(text))
        said = "".join(map(_row, forms, answer(forms)))
    if "APPROVE" in os.environ:
        file.write_text(said)
    assert said.splitlines() == file.read_text().splitlines(), "if this is meant: run it once with APPROVE=1"


def _forms(text: str) -> Iterator[str]:
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("=>"):
            if lines:
                yield "\n".join(lines)
            lines = []
        elif not lines and " =>" in line:
            yield line.rpartition(" =>")[0]
        else:
            lines.append(line)
    assert not lines, f"no answer to {lines}"


def _row(form: str, answer: str) -> str:
    lines = [f"=> {line}".rstrip() for line in answer.rstrip().removeprefix("\n").removeprefix(" ").splitlines()] or [
        "=>"
    ]
    return f"{form} {lines[0]}\n" if "\n" not in form and len(lines) == 1 else "\n".join([form, *lines, ""])
