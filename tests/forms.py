"""Files of forms: pieces of code, each with what comes of it, as somebody read it.

A form, then `=>` and the answer, then a line of dashes. After a change that is meant, `APPROVE=1 pytest` of the test
writes the answers anew: read the diff. A new form is written into the file without an answer.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

_BETWEEN = "\n----\n"


def check_forms(file: Path, answer: Callable[[list[str]], Iterable[str]]) -> None:
    """Every form of a file has the answer that stands there."""
    told = file.read_text()
    forms = [section.partition("\n=>")[0] for section in told.removesuffix("\n").split(_BETWEEN)]
    said = _BETWEEN.join(f"{form}\n=>{answered}" for form, answered in zip(forms, answer(forms), strict=True)) + "\n"
    if "APPROVE" in os.environ:
        file.write_text(said)
    assert said.splitlines() == file.read_text().splitlines(), "if this is meant: run it once with APPROVE=1"
