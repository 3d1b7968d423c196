"""The tables of docs/beside.md are those that its benchmark makes of the figures."""

import json
import sys
from pathlib import Path

import pytest

from mcore_unpatch.codemods.catalogue.kernels import Kernels

ROOT = Path(__file__).parents[3]


def test_the_tables_are_made_of_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import beside

    page = (ROOT / "docs" / "beside.md").read_text()
    shown = page.partition("<!-- tables -->\n")[2].partition("\n<!-- end -->")[0]
    assert shown == beside.tables(json.loads((ROOT / "docs" / "beside.json").read_text()))
    sys.modules.pop("beside")


@pytest.mark.parametrize(
    ("ours", "kind"), [("", "train"), (", all kept", "train"), ("", "infer")], ids=["train", "all kept", "infer"]
)
def test_what_is_said_of_verls_kernel_is_what_was_measured(ours: str, kind: str) -> None:
    figures = json.loads((ROOT / "docs" / "beside.json").read_text())["gpu"]["figures"]
    taken = {(one["peer"], *one["shape"]): one[kind]["ms"] for one in figures if "ms" in one.get(kind, {})}
    shapes = [shape for peer, *shape in taken if peer == "veRL's kernel"]
    parts = [taken[f"ours as veRL's kernel{ours}", *shape] / taken["veRL's kernel", *shape] for shape in shapes]
    page = (ROOT / "docs" / "frameworks" / "verl.md").read_text()
    assert f"{min(parts):.2f} to {max(parts):.2f}" in page
    if kind == "train" and not ours:
        assert Kernels.offers.startswith(f"{1 / max(parts):.1f} to {1 / min(parts):.1f} times as fast")
