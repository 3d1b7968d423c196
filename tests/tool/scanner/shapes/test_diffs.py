"""Heads and hunks of diffs as git, diff and quilt write them: what is read of each form in diffs.txt."""

from pathlib import Path

from forms import check_forms

from mcore_unpatch.scanner.sources import diffs

FORMS = Path(__file__).with_name("diffs.txt")


def test_every_form_is_read_as_somebody_read_it() -> None:
    check_forms(FORMS, lambda forms: map(read, forms))


def read(form: str) -> str:
    """Each file with its line, its names before and after, how many lines are its own, its changes."""
    said = []
    for file in diffs.read(form.encode()):
        changes = "".join(f" {line}:{name}" for line, name in file.changes)
        said.append(f" {file.line} {file.old!r} -> {file.new!r} of {len(file.text)}{changes};")
    return "".join(said)
