"""A file that would take too long is reported, and the others are analysed all the same; `--jobs` changes nothing."""

from pathlib import Path

import pytest
from checking import write_files

from mcore_unpatch.megatron.versions import NEWEST, Version
from mcore_unpatch.scanner.sources import effort
from mcore_unpatch.survey.scan import scan
from mcore_unpatch.survey.search import Search
from mcore_unpatch.survey.survey import ScanOptions

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


def releases(_: str) -> tuple[Version, ...]:
    return (NEWEST,)


def test_a_file_over_its_budget_is_an_error_of_that_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort.Effort.__init__, "__defaults__", (500,))
    files = {"a.py": IMPORT + "GPTModel.forward = f\n" * 100, "b.py": IMPORT + "GPTModel.forward = f\n"}
    data = {path: text.encode() for path, text in files.items()}
    found, errors = Search(data.__getitem__, data.__contains__, releases)(list(data))
    assert [(error.path, "steps to analyse" in error.message) for error in errors] == [("a.py", True)]
    assert [finding.path for finding in found] == ["b.py"]


def test_functions_that_return_each_other_are_followed() -> None:
    count = 22
    functions = "".join(
        f"def f{i}(m): return {' or '.join(f'f{j}(m)' for j in range(count) if j != i)}\n" for i in range(count)
    )
    source = f"{IMPORT}{functions}def g(m): return f0(m) or GPTModel()\ng(1).forward = print\nf3(1).forward = print\n"
    data = {"a.py": source.encode()}
    found, errors = Search(data.__getitem__, data.__contains__, releases)(list(data))
    assert errors == []
    assert [finding.line for finding in found] == [count + 3]


def test_the_order_is_the_same_whatever_the_jobs(tmp_path: Path) -> None:
    padding = "#" * 400_000 + "\n"
    files = {f"p{i % 7}/m{i}.py": f"{IMPORT}GPTModel.forward = print  # {i}\n{padding}" for i in range(12)}
    write_files(tmp_path, files | {f"p{i}/broken{i}.py": IMPORT.encode() + b"GPTModel.forward = (" for i in range(4)})
    first, *others = (scan([tmp_path], ScanOptions(jobs=jobs)).to_json() for jobs in (1, 2, 3))
    assert len(first["findings"]) == 12
    assert len(first["errors"]) == 4
    assert others == [first, first]
