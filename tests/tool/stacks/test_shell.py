"""What scripts, Dockerfiles and workflows install: each form in shell.txt, with the Megatron that it means."""

from pathlib import Path

from forms import check_forms

from mcore_unpatch.stacks.revision import ReadFile
from mcore_unpatch.stacks.shell import of_pairs, of_script

FORMS = Path(__file__).parent / "shell.txt"
UPSTREAM = "https://github.com/NVIDIA/Megatron-LM.git"


def test_every_form_means_what_somebody_read() -> None:
    check_forms(FORMS, lambda forms: map(meant, forms))


def meant(form: str) -> str:
    """The Megatrons by line, what is not known, and the images; `U` stands for the address of Megatron-LM."""
    kind, marked, text = form.partition(": ")
    kind, text = (kind, text) if marked and kind in {"docker", "pairs"} else ("", form)
    file = ReadFile(Path(), "x", text.replace(" U", f" {UPSTREAM}").replace("+U", f"+{UPSTREAM}"), "")
    if kind == "pairs":
        of_pairs(file)
    else:
        of_script(file, docker=kind == "docker")
    said = [f" {line} is {one.name}{'?' * (not one.certain)};" for line, one in file.found]
    said += [f" {line}: {note};" for line, note in file.notes]
    return "".join([*said, f" from {' '.join(file.images)}" if file.images else ""])
