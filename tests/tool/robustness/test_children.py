"""No process that the tool starts takes a module from the folder it is run in."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from downloads import unpacked
from prepared import run_prepared

import mcore_unpatch
from mcore_unpatch.errors import UsageError
from mcore_unpatch.stacks import at_hand as sources

# Everything that a starting interpreter, pip or a worker imports early; each leaves a trace and lets the import go on.
TRAPS = (
    "pip",
    "multiprocessing",
    "sitecustomize",
    "usercustomize",
    "mcore_unpatch",
    "pickle",
    "encodings",
    "runpy",
    "subprocess",
    "threading",
    "typer",
    "libcst",
)
TRAP = "import os\nopen(os.environ['TRACES'] + '/' + __name__.replace('.', '_'), 'w').close()\n"
# `audit` runs the program that the user names, in the user's own way.
STARTERS = {
    "repository/git.py",
    "stacks/at_hand.py",
    "survey/parallel.py",
    "commands/audit.py",
    "verify/measure.py",
}

# Works on two shares of files in the folder it is run in, with the start method that it is given.
WORK = """
import sys
from pathlib import Path
from mcore_unpatch.survey import parallel
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.work_tree import WorkTree

def newest(path):
    return ((0, 19),)

if __name__ == "__main__":
    tree = WorkTree(Path.cwd())
    paths = [f"part{number}.py" for number in range(4)]
    task = parallel.Task(tree.read, tree.exists, newest, mocks=False)
    sizes = [10_000_000 for path in paths]
    parts = parallel.analyse(paths, sizes, task, 2, Parsed(), start=sys.argv[1])
    print(sum(len(part.findings) for part in parts))
"""

# Has a rank that computes nothing, as it is started on a GPU.
RANK = """
from types import SimpleNamespace
from mcore_unpatch.verify import measure
from mcore_unpatch.verify.models import Setting

def nothing(setting):
    return [measure.Row(setting.name, "loss", 0.0, 1.0)]

if __name__ == "__main__":
    measure.sys = SimpleNamespace(platform="another")
    print(*(row.verdict for rows in measure.run([Setting("GPT")], nothing) for row in rows))
"""


@pytest.fixture
def traps(tmp_path: Path) -> Path:
    """A folder full of modules that leave a trace when imported, as modules and as packages."""
    folder = tmp_path / "repository"
    folder.mkdir()
    for name in TRAPS:
        (folder / f"{name}.py").write_text(TRAP)
        (folder / name).mkdir()
        for part in ("__init__", "__main__", "spawn", "resource_tracker"):
            (folder / name / f"{part}.py").write_text(TRAP)
    for number in range(4):
        patch = "from megatron.core.models.gpt import GPTModel\nGPTModel.forward = print\n"
        (folder / f"part{number}.py").write_text(patch)
    return folder


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "traces"
    folder.mkdir()
    return folder


@pytest.mark.slow
def test_pip(traps: Path, traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(traps)
    for name, value in {"TRACES": str(traces), "PIP_NO_INDEX": "1", "XDG_CACHE_HOME": str(traces.parent)}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match="pip could not download megatron-core"):
        sources.fetch("0.0.1")
    assert list(traces.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["-E"], ["-I"]], ids=["plain", "-E", "-I"])
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers(start: str, flags: list[str], traps: Path, traces: Path) -> None:
    assert told(WORK, [start], flags, traps, traces) == ("4\n", "")


@pytest.mark.ranks
def test_a_rank(traps: Path, traces: Path) -> None:
    """Its parent has torch already; the rank is a new interpreter."""
    script = traps.parent / "work.py"
    script.write_text(RANK)
    megatron = unpacked("megatron-core", "0.19.2")
    done = run_prepared(megatron, script, cwd=traps, env={"TRACES": str(traces)})
    assert (done.stdout, list(traces.iterdir())) == ("holds\n", []), done.stderr


@pytest.mark.ranks
@pytest.mark.every_case
@pytest.mark.parametrize(("flags", "said"), [([], "holds\n"), (["-E", "-P"], "holds\n"), (["-E"], "")])
def test_ranks(flags: list[str], said: str, traps: Path, traces: Path) -> None:
    out, err = told(RANK, [], flags, traps, traces)
    assert (out, "UsageError: Python runs with -E" in err) == (said, not said)


@pytest.mark.parametrize(("flags", "safe"), [([], True), (["-E", "-P"], True), (["-E"], False)])
def test_what_flags_let_a_new_interpreter_be_safe(flags: list[str], safe: bool) -> None:
    """Without torch, which a rank needs."""
    code = "from mcore_unpatch.children import can_be_safe; print(can_be_safe())"
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{safe}\n"


def told(code: str, arguments: list[str], flags: list[str], traps: Path, traces: Path) -> tuple[str, str]:
    """What a script that lies elsewhere prints when it is run among the traps, and runs into none."""
    script = traps.parent / "elsewhere" / "work.py"
    script.parent.mkdir()
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, *flags, str(script), *arguments],
        cwd=traps,
        env={**os.environ, "TRACES": str(traces)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert list(traces.iterdir()) == []
    return done.stdout, done.stderr


def test_the_traps_work(traps: Path, traces: Path) -> None:
    """An interpreter that looks into its folder runs into them."""
    environment = {**os.environ, "TRACES": str(traces)}
    subprocess.run([sys.executable, "-m", "pip"], cwd=traps, env=environment, check=True)
    subprocess.run([sys.executable, "-c", "import multiprocessing.spawn"], cwd=traps, env=environment, check=True)
    assert {path.name for path in traces.iterdir()} >= {"pip", "multiprocessing_spawn"}


@pytest.mark.slow
def test_nobody_else_starts_a_process() -> None:
    """A module that does is tried above, too."""
    starters = {"subprocess", "multiprocessing", "concurrent", "pty"}
    starting = set()
    top = Path(mcore_unpatch.__file__).parent
    codemods = Path(mcore_unpatch.__path__[0]).parent / "codemods"
    for file in (*top.rglob("*.py"), *codemods.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if isinstance(node, ast.Attribute) and node.attr.startswith(
                ("exec", "spawn", "posix_spawn", "fork", "popen")
            ):
                names = ["subprocess"] if isinstance(node.value, ast.Name) and node.value.id == "os" else []
            if isinstance(node, ast.Attribute) and node.attr == "multiprocessing":
                names = ["torch.multiprocessing"]
            if any(starters.intersection(name.split(".")) for name in names):
                starting.add(file.relative_to(top).as_posix() if file.is_relative_to(top) else str(file))
    assert starting == STARTERS
