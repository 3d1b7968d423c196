"""What files of Python projects say of Megatron: each form in python.txt, with the Megatrons that it means.

The first line of a form is the name of the file. `own/` is a Megatron in the repository, `sub/` a submodule.
"""

import re
from pathlib import Path

from forms import check_forms

from mcore_unpatch.stacks.reading import _READERS, _kind
from mcore_unpatch.stacks.revision import ReadFile

FORMS = Path(__file__).with_name("python.txt")
INFO = "MAJOR = 0\nMINOR = 18\nPATCH = 2\n"
MODULES = '[submodule "sub"]\n\tpath = sub\n\turl = https://github.com/NVIDIA/Megatron-LM.git\n'


def test_every_form_means_what_somebody_read(tmp_path: Path) -> None:
    for folder, text in (("own", INFO), ("odd", "MAJOR = (")):
        (tmp_path / folder / "megatron" / "core").mkdir(parents=True)
        (tmp_path / folder / "megatron" / "core" / "package_info.py").write_text(text)

    def meant(form: str) -> str:
        name, _, text = form.partition("\n")
        file = ReadFile(tmp_path, name, text, MODULES)
        kind = _kind(name)
        assert kind is not None
        try:
            _READERS[kind](file)
        except ValueError as error:
            return f" {type(error).__name__}"
        said = [
            f" {line}{how} is {one}{'?' * (not one.certain)}{' of any' * one.is_range} ({' '.join(one.releases)});"
            for how, rows in (("", file.found), (" maybe", file.optional))
            for line, one in rows
        ]
        said += [f" {line}: {note};" for line, note in file.notes]
        return re.sub(r"\d{4}-\d\d-\d\d", "a day", "".join(said))

    check_forms(FORMS, lambda forms: map(meant, forms))
