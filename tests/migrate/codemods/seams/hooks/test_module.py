"""What a function tells of the object whose `forward` it replaces: the forms of module.txt.

A form is an object, as an expression, and the function around it.
"""

import ast
from pathlib import Path

from forms import check_forms

from mcore_unpatch.codemods.seams.hooks import module

FORMS = Path(__file__).with_name("module.txt")


def test_every_form_is_what_somebody_read() -> None:
    check_forms(FORMS, lambda forms: map(told, forms))


def told(form: str) -> str:
    """What it was read from, what it is called by, and whether it is a module."""
    given, _, text = form.partition("\n")
    node = ast.parse(given, mode="eval").body
    around = next((one for one in ast.parse(text).body if isinstance(one, ast.FunctionDef)), None)
    behind = ast.unparse(module.behind(node, around))
    return f" {behind}, {module.name_of(node, around) or 'no name'}{', a module' * module._is_module(node, around)}"
