"""Small programs for the outcomes of conditions in the scanner, the judge and the codemods, and what is told of each.

The programs were found: sources of all other tests, kept where a jump or a return of the code had an outcome that it
had for none before them, in a file of the module that the jump is in. What the other tests say of them is a part; here
stands all of it. `by_hand` has what was thought of beside them; `made` what a machine made of them by small changes of
the programs, kept where a condition of the code with a fault in it tells something else, and told the same before.
After a change that is meant, `APPROVE=1 pytest tests/tool/variations` writes it anew: read the diff.
"""

from pathlib import Path

import pytest
from forms import check_forms
from told import told

FILES = sorted((Path(__file__).parent / "said").glob("*.txt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_all_is_told_as_before(file: Path) -> None:
    check_forms(file, lambda forms: map(told, forms))
