"""Methods that statements add to Megatron's classes become functions that are called with the object, in all files."""

from __future__ import annotations

from textwrap import indent

import pytest
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
            "        self.optimizer.to_host(\n            pin=", "        to_host(\n            self.optimizer, pin="
        )
    )
    assert files["pkg/other.py"] == (
        OTHER.replace("import MegatronOptimizer\n", "import MegatronOptimizer\n\nfrom pkg.offload import to_device\n")
        .replace("states.to_device()", "to_device(states)")
        .replace("one.to_device()", "to_device(one)")
    )
    assert made(files)[0] == files, "a second run changes nothing"


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
        ("pkg/trainer.py", "class Trainer", "class FsdpOptimizer", "another `to_host` is defined"),
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
