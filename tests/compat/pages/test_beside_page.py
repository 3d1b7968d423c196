"""The tables of docs/beside.md are those that its benchmark makes of the figures."""

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def test_the_tables_are_made_of_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import beside

    page = (ROOT / "docs" / "beside.md").read_text()
    shown = page.partition("<!-- tables -->\n")[2].partition("\n<!-- end -->")[0]
    assert shown == beside.tables(json.loads((ROOT / "docs" / "beside.json").read_text()))
    sys.modules.pop("beside")
