"""The pages say what the tool does."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from planning import migrate

from mcore_unpatch.codemods.edits import Options
from mcore_unpatch.codemods.pages import pages

DOCS = Path(__file__).parents[3] / "docs" / "downstreams"


@pytest.mark.parametrize("name", pages())
def test_the_page_in_docs_is_made_from_the_facts(name: str) -> None:
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == pages()[name].markdown()


@pytest.mark.parametrize("name", pages())
def test_before_becomes_after(name: str) -> None:
    """The code of a page without the sections that a page leaves out: what stays in `after` is what the tool writes."""
    page = pages()[name]
    before = page.before if "def " in page.before else _as_function(page.before)
    result = migrate({"pkg/megatron_module.py": f"{before}\n".encode()}, Options(unsafe_fixes=True))
    new = result.files["pkg/megatron_module.py"].decode()
    ast.parse(page.after)
    for line in page.after.splitlines():
        assert line.strip() in new


def _as_function(code: str) -> str:
    """Statements of a page as the body of a function that calls its model with them."""
    body = "".join(f"    {line}\n" for line in code.splitlines())
    return f"def run(self, model, **additional_kwargs):\n{body}    model(**additional_kwargs)"
