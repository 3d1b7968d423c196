"""A file that would take too long is followed up to a limit, and the others are analysed all the same."""

import gc

import pytest
from checking import searched

from mcore_unpatch.code.module import Module

IMPORT = "from megatron.core.models.gpt import GPTModel\n"


def returning_each_other(count: int) -> str:
    """A file with functions each of which may return what any other returns."""
    functions = "".join(
        f"def f{i}(m): return {' or '.join(f'f{j}(m)' for j in range(count) if j != i)}\n" for i in range(count)
    )
    return f"{IMPORT}{functions}def g(m): return f0(m) or GPTModel()\ng(1).forward = print\nf3(1).forward = print\n"


def test_functions_that_return_each_other_are_followed() -> None:
    found, errors = searched({"a.py": returning_each_other(6).encode()})
    assert (errors, [finding.line for finding in found]) == ([], [9])


def test_and_of_many_only_so_far() -> None:
    found, errors = searched(
        {"a.py": returning_each_other(22).encode(), "b.py": f"{IMPORT}GPTModel.forward = print\n".encode()}
    )
    assert (errors, [finding.path for finding in found]) == ([], ["b.py"])


def test_of_many_files_that_pass_on_all_names_those_are_read_that_say_one() -> None:
    others = {f"pkg/m{i}.py": "#" * 100_000 for i in range(20)}
    stars = "".join(f"from .m{i} import *\n" for i in range(20))
    own = {"pkg/__init__.py": f"{stars}from .inner import *\n", "pkg/inner.py": "from .models import *\n"}
    models = {"pkg/models.py": f"{IMPORT}Model = GPTModel\n", "a.py": "from pkg import Model\nModel.forward = print\n"}
    found, errors = searched({path: text.encode() for path, text in (others | own | models).items()})
    assert errors == []
    assert [finding.path for finding in found] == ["a.py"]


@pytest.mark.slow
def test_what_was_analysed_is_let_go() -> None:
    files = {f"m{i}.py": f"{IMPORT}GPTModel.forward = print\n{'#' * 100_000}".encode() for i in range(40)}
    gc.collect()
    gc.freeze()  # what is here before is none of `get_objects`
    found, _ = searched(files)
    gc.collect()
    kept = sum(type(one) is Module for one in gc.get_objects())
    assert len(found) == 40
    assert kept == 0
