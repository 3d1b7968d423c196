"""A file that would take too long is reported, and the others are analysed all the same; `--jobs` changes nothing."""

import gc
from pathlib import Path

import pytest
from checking import write_files

from mcore_unpatch.megatron.versions import NEWEST, Version
from mcore_unpatch.scanner.names.resolver import Resolver
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


def test_of_many_files_that_pass_on_all_names_those_are_read_that_say_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(effort.Effort.__init__, "__defaults__", (50_000,))
    others = {f"pkg/m{i}.py": "#" * 100_000 for i in range(20)}
    stars = "".join(f"from .m{i} import *\n" for i in range(20))
    own = {"pkg/__init__.py": f"{stars}from .inner import *\n", "pkg/inner.py": "from .models import *\n"}
    models = {"pkg/models.py": f"{IMPORT}Model = GPTModel\n", "a.py": "from pkg import Model\nModel.forward = print\n"}
    data = {path: text.encode() for path, text in (others | own | models).items()}
    there = {*data, "pkg"}
    found, errors = Search(data.__getitem__, there.__contains__, releases)(list(data))
    assert errors == []
    assert [finding.path for finding in found] == ["a.py"]


@pytest.mark.slow
def test_what_was_analysed_is_let_go_without_a_search_for_garbage() -> None:
    files = {f"m{i}.py": f"{IMPORT}GPTModel.forward = print\n{'#' * 100_000}" for i in range(40)}
    data = {path: text.encode() for path, text in files.items()}
    gc.collect()
    gc.freeze()  # what is here before is none of `get_objects`
    gc.disable()
    try:
        found, _ = Search(data.__getitem__, data.__contains__, releases)(list(data))
        kept = sum(type(one) is Resolver for one in gc.get_objects())
    finally:
        gc.enable()
    assert len(found) == 40
    assert kept == 0


@pytest.mark.slow
def test_the_order_is_the_same_whatever_the_jobs(tmp_path: Path) -> None:
    padding = "#" * 400_000 + "\n"
    files = {f"p{i % 7}/m{i}.py": f"{IMPORT}GPTModel.forward = print  # {i}\n{padding}" for i in range(12)}
    write_files(tmp_path, files | {f"p{i}/broken{i}.py": IMPORT.encode() + b"GPTModel.forward = (" for i in range(4)})
    first, *others = (scan([tmp_path], ScanOptions(jobs=jobs)).to_json() for jobs in (1, 2, 3))
    assert len(first["findings"]) == 12
    assert len(first["errors"]) == 4
    assert others == [first, first]
