"""Methods that statements add to Megatron's classes become functions that are called with the object, in all files."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from command import unpatch
from planning import migrate

from mcore_unpatch.editing.edits import Options

UNSAFE = Options(unsafe_fixes=True)
BOTH = """    DistributedOptimizer.to_host = to_host
    setattr(DistributedOptimizer, "to_device", to_device)
"""
ADDING = f"""
import torch
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer


def to_host(self, pin=True):
    for group in self.optimizer.param_groups:
        print(group, pin)


def to_device(self):
    self.to_host(pin=False)


def install():
    \"\"\"Before training.\"\"\"
{BOTH}"""
TRAINER = """
from pkg.offload import install

install()


class Trainer:
    def __init__(self, optimizer):
        self.optimizer = optimizer

    def to_host(self):
        self.optimizer.to_host(
            pin=True,  # why
        )

    def sleep(self):
        self.to_host()
"""
OTHER = """
from megatron.core.optimizer import MegatronOptimizer


def wake(states: MegatronOptimizer, optimizers):
    states.to_device()
    for one in optimizers:
        one.to_device()
"""
FILES = {"pkg/__init__.py": "", "pkg/offload.py": ADDING, "pkg/trainer.py": TRAINER, "pkg/other.py": OTHER}


def made(files: dict[str, str], options: Options = UNSAFE) -> tuple[dict[str, str], str]:
    """The files, and why something is left."""
    done = migrate({path: text.encode() for path, text in files.items()}, options)
    return {path: data.decode() for path, data in done.files.items()}, " ".join(one.text for one in done.plan.remarks)


def test_they_are_called_with_the_object_in_all_files() -> None:
    files, _ = made(FILES)
    assert files["pkg/offload.py"] == (
        ADDING[: ADDING.index("\n\ndef install")]
        .replace("from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer\n", "")
        .replace("self.to_host(pin=False)", "to_host(self, pin=False)")
    )
    assert files["pkg/trainer.py"] == (
        TRAINER.replace("import install\n\ninstall()\n", "import to_host\n").replace(
            "        self.optimizer.to_host(\n            pin=",
            "        to_host(\n            self.optimizer,\n            pin=",
        )
    )
    assert files["pkg/other.py"] == (
        OTHER.replace("import MegatronOptimizer\n", "import MegatronOptimizer\n\nfrom pkg.offload import to_device\n")
        .replace("states.to_device()", "to_device(states)")
        .replace("one.to_device()", "to_device(one)")
    )
    assert made(files)[0] == files, "a second run changes nothing"


def test_a_file_that_has_nothing_to_do_with_megatron_means_a_method_of_others() -> None:
    engine = {"tests/engine.py": "import engine\n\nengine.start().to_host()\n"}
    assert made({**FILES, **engine})[0] == {**made(FILES)[0], **engine}


def test_without_consent_nothing_changes() -> None:
    assert made(FILES, Options())[0] == FILES


def test_classes_with_functions_of_their_own_are_told_apart() -> None:
    adding = """
from megatron.core.optimizer import ChainedOptimizer, DistributedOptimizer, MegatronOptimizer


def all_to_host(self):
    for one in self.chained_optimizers:
        one.to_host()


def one_to_host(self):
    print(self)


MegatronOptimizer.to_host = one_to_host
ChainedOptimizer.to_host = all_to_host
"""
    files, _ = made({"pkg/offload.py": adding, "pkg/sleep.py": "import pkg.offload\n\n\ndef sleep(optimizer): ...\n"})
    assert (
        files["pkg/offload.py"]
        == """
from megatron.core.optimizer import ChainedOptimizer, DistributedOptimizer, MegatronOptimizer


def all_to_host(self):
    for one in self.chained_optimizers:
        to_host(one)


def one_to_host(self):
    print(self)


def to_host(optimizer, *args, **kwargs):
    if isinstance(optimizer, ChainedOptimizer):
        return all_to_host(optimizer, *args, **kwargs)
    if isinstance(optimizer, MegatronOptimizer):
        return one_to_host(optimizer, *args, **kwargs)
    raise TypeError(f"to_host does not know {type(optimizer).__name__}")
"""
    )


def test_a_function_of_another_file_is_imported_from_there() -> None:
    functions, installing = ADDING.split("\n\ndef install")
    adding = "from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer\n"
    adding += f"\nfrom pkg.states import to_device, to_host\n\n\ndef install{installing}"
    files, _ = made({**FILES, "pkg/states.py": functions, "pkg/offload.py": adding})
    assert files["pkg/offload.py"].strip() == ""
    assert "from pkg.states import to_host\n" in files["pkg/trainer.py"]
    assert "from pkg.states import to_device\n" in files["pkg/other.py"]


@pytest.mark.parametrize(
    ("path", "old", "new", "because"),
    [
        ("pkg/other.py", "    states.to_device()", "    later = states.to_device", "of what may be the same object"),
        ("pkg/other.py", OTHER[OTHER.index("\n\ndef") :], "", "nothing in this repository calls `to_device`"),
        ("pkg/other.py", "states: MegatronOptimizer", "states", "of what may be the same object"),
        ("pkg/other.py", "states: MegatronOptimizer", "optimizer: 'Engine', states", "of what may be the same object"),
        (
            "pkg/other.py",
            "    states.",
            '    getattr(states, "to_device")\n    states.',
            "asks for `to_device` by name",
        ),
        (
            "pkg/other.py",
            OTHER,
            "def wake(optimizer):\n    optimizer.to_device()\n",
            "imports nothing from pkg/offload",
        ),
        ("pkg/trainer.py", "class Trainer", "class FsdpOptimizer", "pkg/trainer.py defines another `to_host`"),
        ("pkg/trainer.py", "    def sleep", "    to_host = 1\n\n    def sleep", "has another `to_host`"),
        ("pkg/offload.py", "def to_device", "@torch.no_grad()\ndef to_device", "only plain functions"),
        ("pkg/offload.py", BOTH, f"    for _ in x:\n{indent(BOTH, '    ')}", "only plain functions"),
        ("pkg/offload.py", "import torch", "import torch\n\nfrom pkg.other import wake", "imports nothing from"),
        (
            "pkg/other.py",
            "def wake",
            "MegatronOptimizer.to_device = print\n\n\ndef wake",
            "of what may be the same object",
        ),
        ("pkg/trainer.py", "install()\n", "setup = install\n", "pkg/trainer.py, line 4 names it"),
    ],
)
def test_what_is_left_says_why(path: str, old: str, new: str, because: str) -> None:
    files = {**FILES, path: FILES[path].replace(old, new)}
    assert files != FILES
    done, said = made(files)
    assert done == files
    assert because in said


def test_a_condition_of_a_statement_goes_with_it() -> None:
    """Where the method was not added, its call raised."""
    files, _ = made({**FILES, "pkg/offload.py": ADDING.replace(BOTH, f"    if __debug__:\n{indent(BOTH, '    ')}")})
    assert files == made(FILES)[0]


def test_a_name_that_megatron_has_stays() -> None:
    files = {path: text.replace("to_device", "offload_to_cpu") for path, text in FILES.items()}
    assert made(files)[0] == files


CALLED = """
from megatron.core.optimizer import DistributedOptimizer


def my_state(self, rows=()):
    return rows


DistributedOptimizer.my_state = my_state


def use(optimizer):
    optimizer.my_state()
"""


@pytest.mark.parametrize(
    ("more", "because"),
    [
        ("DistributedOptimizer.my_state(optimizer)", "of what may be the same object"),
        ("my_state = optimizer.my_state()", "where `my_state` is another name"),
        ("[optimizer.my_state() for my_state in range(3)]", "where `my_state` is another name"),
        ("optimizer = Adam()", "of what may be the same object"),
        ("optimizer: Adam = make()", "of what may be the same object"),
        ("group.run_all('my_state')", "asks for `my_state` by name"),
        ("getattr(optimizer, f'my_{optimizer}')", "asks for a name that may be `my_state`"),
        ("optimizer.my_state(row for row in [])", "in a form that is not rewritten"),
        ("optimizer.my_state ()", "in a form that is not rewritten"),
        ("f'{optimizer.my_state()}'", "in a form that is not rewritten"),
        ("try:\n        optimizer.my_state()\n    except AttributeError: ...", "may have no `my_state`"),
    ],
)
def test_a_call_that_means_another_or_does_more_stays(more: str, because: str) -> None:
    before = f"{CALLED}    {more}\n"
    files, said = made({"a.py": before})
    assert files["a.py"] == before
    assert because in said


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "pkg/b.py",
            "from a import DistributedOptimizer\n\n\nclass Muon(DistributedOptimizer):\n    my_state = None\n",
        ),
        ("tests/test_a.py", "from a import use\n\n\nclass Fake:\n    def my_state(self): ...\n"),
    ],
)
def test_an_object_that_has_a_method_of_its_own_keeps_it(path: str, text: str) -> None:
    files = {"a.py": CALLED, path: text}
    done, said = made(files)
    assert done == files
    assert f"{path} defines another `my_state`" in said


def test_a_guard_that_asks_for_the_name_goes_with_the_statement() -> None:
    old = "DistributedOptimizer.my_state = my_state\n"
    guarded = CALLED.replace(old, f'if not hasattr(DistributedOptimizer, "my_state"):\n    {old}')
    assert made({"a.py": guarded})[0] == made({"a.py": CALLED})[0] != {"a.py": CALLED}


USE = "from megatron.core import parallel_state\n\n\ndef use(optimizer):\n    optimizer.my_state()\n"


@pytest.mark.parametrize(
    "files",
    [
        {"a.py": f"{CALLED}\n\nuse(3)\n"},  # a script
        {"a.py": f"{CALLED}\n\nif __name__ == '__main__':\n    use(3)\n"},
        {"a.py": f"from b import x\n{CALLED}", "b.py": "import use\n\nx = use\n"},
        {"pkg/__init__.py": "import use\n", "pkg/a.py": CALLED},
        {"folder/a.py": CALLED},
    ],
)
def test_a_file_imports_nothing_that_would_run_another(files: dict[str, str]) -> None:
    done, said = made({**files, "use.py": USE})
    assert done == {**files, "use.py": USE}
    assert "use.py:5 calls `my_state` and imports nothing from" in said


def test_a_file_imports_from_the_package_below_src() -> None:
    files, _ = made({"src/pkg/__init__.py": "", "src/pkg/a.py": CALLED, "src/pkg/use.py": USE})
    assert "from pkg.a import my_state\n" in files["src/pkg/use.py"]


INSTALL = CALLED.replace("DistributedOptimizer.my", "\ndef install():\n    DistributedOptimizer.my") + "\n\ninstall()\n"


def test_an_import_in_a_function_gives_the_function_then() -> None:
    use = """def use(optimizer):
    from megatron.core import parallel_state
    from a import {}

    {}
"""
    before = use.format("install", "install()\n    optimizer.my_state()")
    files, _ = made({"a.py": INSTALL, "use.py": before})
    assert files["use.py"] == use.format("my_state", "my_state(optimizer)")


def test_an_import_for_others_goes_with_what_it_names() -> None:
    files, _ = made({"pkg/__init__.py": "from .a import install\nfrom .b import other\n", "pkg/a.py": INSTALL})
    assert files["pkg/__init__.py"] == "from .b import other\n"


def test_an_empty_package_is_not_to_be_deleted(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "requirements.txt").write_text("megatron-core==0.19.2\n")
    (tmp_path / "pkg/__init__.py").write_text("from .a import install\n")
    (tmp_path / "pkg/a.py").write_text(INSTALL)
    told = unpatch("migrate", "--check", "--unsafe-fixes", cwd=tmp_path).out
    assert "pkg/__init__.py  MCU404\n" in told


def test_what_starts_a_function_is_told_by_project_files_too() -> None:
    unused = INSTALL.replace("\n\ninstall()\n", "")
    files, said = made({"a.py": unused})
    assert files["a.py"] == unused
    assert "nothing in this repository calls the function that adds it" in said
    project = {"pyproject.toml": '[project.entry-points."plugins"]\nmine = "a:install"\n'}
    files, said = made({"a.py": INSTALL, **project})
    assert files["a.py"] == INSTALL
    assert "`install` would be empty then, and pyproject.toml names it" in said
