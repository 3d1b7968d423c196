"""Small programs that lead through the conditions of scanner, judge and codemods, and the facts that are told of each.

They were chosen from 1,500 that people and a machine made: those that together take most of the branches that all take.
"""

from pathlib import Path

import pytest
from forms import check_forms
from told import told

FILES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_facts_are_as_before(file: Path) -> None:
    check_forms(file, lambda forms: map(told, forms))
