"""Worst cases for every stage of a scan: eight times the input costs about eight times the work, never its square.

Costs are processor time, compared with each other in one run: the factor between them is asserted, never seconds.
"""

import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from checking import releases

from mcore_unpatch.findings.finding import Finding, Report
from mcore_unpatch.gate import baseline, compare, suppress
from mcore_unpatch.megatron.versions import NEWEST, Version
from mcore_unpatch.report import text as text_report
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.scanner.sources.parsing import Unreadable, parse
from mcore_unpatch.stacks import python, shell
from mcore_unpatch.stacks.revision import ReadFile
from mcore_unpatch.survey import patch_files
from mcore_unpatch.survey.parallel import ScannedPart, Task, analyse
from mcore_unpatch.upgrade.uses import uses_for

pytestmark = pytest.mark.growth
TIMES = 8
# What is linear costs 8 times as much, what is quadratic 64 times: half way between, as factors go, is 23.
TOO_MUCH = 23
IMPORT = "from megatron.core.models.gpt import GPTModel\n"

Make = Callable[[int], str]


def seconds(work: Callable[[], object]) -> float:
    """Processor time, the least of a few: what else the machine does only adds to it."""
    taken = []
    for _ in range(2):
        gc.disable()
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
        gc.enable()
        if taken[-1] > 0.3:
            break  # long enough to tell
    return min(taken)


def check_growth(work: Callable[[int], Callable[[], object]], size: int) -> None:
    """Compare the cost of `size` with that of eight times the size; a size that costs too little to tell is doubled."""
    work(1)()  # tables are read, patterns compiled
    gc.collect()
    small = seconds(work(size))
    while small < 0.01 and size < 1_000_000:
        size *= 2
        small = seconds(work(size))
    large = seconds(work(size * TIMES))
    assert large < small * TOO_MUCH, f"{size} -> {size * TIMES}: {small:.3f} -> {large:.3f}"


def scan_of(sources: dict[str, str]) -> ScannedPart:
    files = {path: source.encode() for path, source in sources.items()}
    folders = {path.rpartition("/")[0] for path in files}
    task = Task(files.__getitem__, (folders | set(files)).__contains__, _newest, mocks=True)
    (part,) = analyse(list(files), [0] * len(files), task, 1, Parsed())
    return part


def _newest(_: str) -> tuple[Version, ...]:
    return (NEWEST,)


def lines(template: str) -> Make:
    """A file of n such lines, with `{i}` counted up; it says Megatron."""
    return lambda n: IMPORT + "".join(template.replace("{i}", str(i)) for i in range(n))


def one_line(word: str, start: str = IMPORT) -> Make:
    """A word again and again on one line."""
    return lambda n: start + word * n + "\n"


def within(head: str, template: str, tail: str = "") -> Make:
    """A function or class of n such lines."""
    return lambda n: IMPORT + head + "".join(template.replace("{i}", str(i)) for i in range(n)) + tail


PREFILTER: dict[str, Make] = {
    "setattr( without a comma": one_line("setattr("),
    "setattr( and white space": one_line("setattr(   "),
    "setattr( of a long name": one_line("setattr(a.a."),
    "patch_patch_": one_line("patch_"),
    "override, swap, replace_, extend_": one_line("override_swap_replace_extend_"),
    "patch( of a path": one_line("patch(a.a."),
    "patch( of a path and a comma": one_line("patch(a[a].a"),
    "attributes and commas": one_line(".a,"),
    "attributes and colons": one_line(".a:"),
    "attributes and spaces": one_line(".a  "),
    "attributes of a class": one_line(".A"),
    "assignments on one line": one_line("a.forward=1;"),
    "chained assignments": one_line("a.forward="),
    "assignments behind a colon": one_line("if a: b.forward=1;"),
    "layers[": one_line("layers["),
    "layers[0] and white space": one_line("layers[0]   \n"),
    "vars(": one_line("vars("),
    "__dict__": one_line("__dict__   "),
    "imports that never end": one_line("\nfrom a import (b,"),
    "import of names": one_line("import a, "),
    "words": one_line("a" * 10),
    "blank lines, then no Python": one_line("\n", IMPORT + "print 1\n"),
    "quotes": one_line("'\"", IMPORT + "setattr(a, "),
    "exec": one_line("exec   "),
    "nothing of Megatron, names assigned to": lambda n: "import x\n" + "a.forward = 1\n" * n,
    "nothing of Megatron, names imported": lambda n: "b.forward = 1\n" + "import a\n" * n,
    "nothing of Megatron, classes": lambda n: "A.\n" * n,
    "nothing of Megatron, blanks": lambda n: "\n   " * n,
    "line ends": one_line("\r"),
}

SCOPES_AND_NAMES: dict[str, Make] = {
    "assignments to one name": lines("x = f{i}()\nx.forward = y\n"),
    "assignments to one name that may not hold": lines("if a: x = f()\nx.forward = g\n"),
    "names made of names": lines("a{i} = a{j}\n".replace("{j}", "{i}")),
    "paths": lines("a.b.c.d.e.f.g.h.i.j.forward = f\n"),
    "narrowed names": lines("assert isinstance(x, A{i})\nx.forward = f\n"),
    "narrowed in branches": lines("if isinstance(x, A): x.forward = f\nelse: x.forward = g\n"),
    "functions that are called": lines("def f{i}(m): m.forward = g\nf{i}(GPTModel)\n"),
    "functions that are called and call": lines("def f{i}(m): m.forward = f{i}(m)\n"),
    "one function called often": lambda n: IMPORT + "def f(m): m.forward = g\n" + "f(a)\n" * n,
    "functions of one name": lines("def f(m): m.forward = g\nf(a)\n"),
    "methods": within("class A(GPTModel):\n", "    def f{i}(self): self.g{i}.forward = h\n"),
    "attributes of a class": within(
        "class A:\n def __init__(self):\n  pass\n", "  self.a{i} = f()\n", "a = A()\n" + "a.a.forward = f\n" * 9
    ),
    "classes of classes": lines("class A{i}(A): pass\nA{i}.forward = f\n"),
    "lists that are filled": lines("x{i} = []\nx{i}.append(GPTModel())\nfor m in x{i}: m.forward = f\n"),
    "tables of names": lambda n: IMPORT + "N = [" + "'forward'," * n + "]\nfor n in N: setattr(GPTModel, n, f)\n",
    "strings of strings": lines("s = s\nsetattr(GPTModel, s, f)\n"),
    "star imports": lines("from a{i} import *\nb{i}.forward = f\n"),
    "globals": lines("def f{i}():\n    global x\n    x = g()\n    x.forward = h\n"),
    "parameters": lambda n: IMPORT + "def f(" + ",".join(f"a{i}" for i in range(n)) + "): a0.forward = a1\n",
    "annotations": lines("def f{i}(m: 'GPTModel | None'): m.forward = g\n"),
}

INSTALLS_AND_RELATIVES: dict[str, Make] = {
    "patches": lines("GPTModel.forward = f{i}\n"),
    "patches with a backup": lines("old{i} = GPTModel.forward\nGPTModel.forward = f{i}\n"),
    "patches with a backup on the class": lines("GPTModel.old{i} = GPTModel.forward\nGPTModel.forward = f{i}\n"),
    "patches taken back": lines("old = GPTModel.forward\nGPTModel.forward = f\nGPTModel.forward = old\n"),
    "patches deleted": lines("m = GPTModel()\nm.forward = f\ndel m.forward\n"),
    "patches flagged": lines("GPTModel.forward = f{i}\nGPTModel.done{i} = True\n"),
    "patches flagged alike": lines("GPTModel.forward = f{i}\nGPTModel.done = True\n"),
    "patches flagged alike in functions": lines("def f{i}():\n GPTModel.forward = f\n GPTModel.done = True\n"),
    "patches flagged in a global": lines("def f{i}():\n global done\n GPTModel.forward = f\n done = True\n"),
    "patches in one function": within("def f():\n", "    GPTModel._postprocess = g\n"),
    "patches in functions, taken back": lines(
        "def f{i}():\n old = GPTModel.forward\n GPTModel.forward = g\n yield\n GPTModel.forward = old\n"
    ),
    "patches on one line": one_line("GPTModel.forward = f;"),
    "patches on one line beyond ASCII": one_line("GPTModel.forward = 'é'.f;"),
    "patches in one statement": lambda n: IMPORT + "(" + "GPTModel.forward,\n" * n + ") = (" + "f,\n" * n + ")\n",
    "patches in one chain": one_line("GPTModel.forward = "),
    "patches with one function": lambda n: (
        IMPORT + "def f(self):\n" + "    x = log_probs\n" * n + "GPTModel.forward = f\n" * n
    ),
    "patches with one factory": lambda n: (
        IMPORT + "def f():\n" + "    def g(): pass\n" * n + "    return g\n" + "GPTModel.forward = f()\n" * n
    ),
    "setattr": lines("setattr(GPTModel, 'forward', f{i})\n"),
    "setattr, one name, computed": lines("setattr(GPTModel, name, f{i})\n"),
    "helpers": lambda n: IMPORT + "def patch(c, n, f): setattr(c, n, f)\n" + "patch(GPTModel, 'forward', g)\n" * n,
    "many helpers": lines("def patch{i}(c, n, f): setattr(c, n, f)\npatch{i}(GPTModel, 'forward', g)\n"),
    "registries": lines("register('megatron.core.transformer.mlp.MLP.forward', f{i})\n"),
    "tables of targets": lambda n: (
        IMPORT + "PATCHES = {" + "'megatron.core.transformer.mlp.MLP.forward': f,\n" * n + "}\n"
    ),
    "namespaces": lines("GPTModel.__dict__.update(forward=f{i})\n"),
    "sys.modules": lines("import sys\nsys.modules['megatron.core.utils'] = f{i}\n"),
    "loops over sys.modules": within(
        "import sys\nfrom megatron.core.utils import get_model_config\nfor m in sys.modules.values():\n",
        "    if m.x == get_model_config: m.get_model_config = f\n",
    ),
    "sources rewritten": lines(
        "def f{i}():\n source = inspect.getsource(GPTModel.forward)\n exec(source)\n GPTModel.forward = g\n"
    ),
    "sources rewritten in one function": within(
        "import inspect\ndef f():\n", "    exec(inspect.getsource(GPTModel.forward))\n"
    ),
    "mocks": lines("mock.patch('megatron.core.utils.get_model_config')\n"),
    "a finally": lines("try:\n GPTModel.forward = f\nfinally:\n GPTModel.forward = old\n"),
    "output layers": lines("m.output_layer = f(m.output_layer)\n"),
}


@pytest.mark.parametrize("name", [*PREFILTER, *SCOPES_AND_NAMES, *INSTALLS_AND_RELATIVES])
def test_analysis(name: str) -> None:
    make = (PREFILTER | SCOPES_AND_NAMES | INSTALLS_AND_RELATIVES)[name]

    def work(size: int) -> Callable[[], object]:
        source = {"a.py": make(size)}
        return lambda: scan_of(source)

    check_growth(work, 200)


@pytest.mark.parametrize(
    "function",
    [
        "def f{i}(m): return g(f{j}(m), f{k}(m)) or f{j}(m) or f{k}(m)\n",
        "def f{i}(m):\n    if m: return f{j}(m)\n    return f{k}(m)\n",
        "def f{i}(m): return f{j}(m)[0].layers[0].layers[0].layers[0] or f{k}(m)\n",
        "class f{i}(f{j}, f{k}):\n    def g(self): return super().g()\n",
        "x{i} = f{j}.a or f{k}.b\nf{i} = x{j} if x{k} else f{k}(x{i})\n",
    ],
)
def test_things_that_lead_to_each_other(function: str) -> None:
    def work(size: int) -> Callable[[], object]:
        some = range(size)
        body = [function.format(i=i, j=(i + 1) % size, k=(i + 2) % size) for i in some]
        source = {"a.py": IMPORT + "".join(body) + "".join(f"f{i}(a).g().forward = b\n" for i in some)}
        return lambda: scan_of(source)

    check_growth(work, 24)  # until a question leads as deep as any may, each goes to all the others


def test_modules_that_lead_to_each_other() -> None:
    def work(size: int) -> Callable[[], object]:
        sources = {}
        for i in range(size):
            j, k = (i + 1) % size, (i + 2) % size
            imports = f"{IMPORT}from m{j} import f{j}\nfrom m{k} import f{k}\nfrom m{j} import *\n"
            sources[f"m{i}.py"] = f"{imports}def f{i}(m): return f{j}(m) or f{k}(m)\nf{j}(a).forward = f{k}(f{i})\n"
        return lambda: scan_of(sources)

    check_growth(work, 4)


def findings(number: int, path: str = "a.py") -> list[Finding]:
    part = scan_of({path: IMPORT + "GPTModel.forward = f\n" * min(number, 1)})
    return [replace(part.findings[0], line=i, end_line=i, related=()) for i in range(number)]


STAGES: dict[str, Callable[[int], Callable[[], object]]] = {
    "ignore comments": lambda n: lambda: suppress.comments(b"x = 1  # unpatch: ignore[MCU601]\n" * n),
    "ignore comments on one line": lambda n: lambda: suppress.comments(b"# unpatch: ignore[" * n),
    "ignore comments behind strings": lambda n: lambda: suppress.comments(b"'#' " * n + b"# unpatch: ignore"),
    "ignore comments in open strings": lambda n: lambda: suppress.comments(b"\"\"\" unpatch:\n'''\n" * n),
    "suppressed findings": lambda n: _suppressing(n),
    "patch files": lambda n: (
        lambda: patch_files.findings_in("a.patch", b"".join(b"+++ b/megatron/core/a%d.py\n" % i for i in range(n)))
    ),
    "patch files, names": lambda n: lambda: patch_files.findings_in("a.patch", b"+++ /" + b"megatron/core/" * n + b"*"),
    "patch files, one line": lambda n: lambda: patch_files.findings_in("a.patch", b"diff --git " + b" b/" * n),
    "patch files, headers": lambda n: lambda: patch_files.findings_in("a.patch", b"diff --git a b\n+++ \n--- \n" * n),
    "patch files, hunks": lambda n: lambda: _patch(DIFF + HUNK * n),
    "patch files, functions": lambda n: lambda: _patch(DIFF + _added(n, "def f{0}(x):\n+    return f{0}(x)\n+")),
    "patch files, classes": lambda n: lambda: _patch(DIFF + _added(n, "class A{0}:\n+    x = 1\n+")),
    "patch files, statements": lambda n: lambda: _patch(DIFF + _added(n, "    x = f({0})")),
    "patch files, brackets": lambda n: lambda: _patch(DIFF + _added(n, "(")),
    "patch files, quotes": lambda n: lambda: _patch(DIFF + _added(n, '"' + 3 * "'")),
    "patch files, long lines": lambda n: lambda: _patch(DIFF + _added(1, '"' + '\\"' * n)),
    "no Python": lambda n: lambda: _unreadable(b"print 1\n" + b"\n" * n),
    "pins": lambda n: lambda: _pins("megatron-core==0.18," * n),
    "pins, brackets": lambda n: lambda: _pins("megatron-core[" * n),
    "pins, white space": lambda n: lambda: _pins("megatron-core" + " " * n),
    "pins, clauses": lambda n: lambda: _pins("megatron-core" + "==a " * n + "("),
    "pins, tags": lambda n: lambda: _pins("megatron " * n),
    "reports": lambda n: _reporting(n),
    "what is new": lambda n: _comparing(n),
    "baselines": lambda n: _subtracting(n),
}


DIFF = "--- a/megatron/core/utils.py\n+++ b/megatron/core/utils.py\n"
HUNK = "@@ -1,2 +1,3 @@ def f(x):\n     a = 1\n+    b = 2\n     c = 3\n"


def _added(number: int, line: str) -> str:
    """A hunk that adds something many times."""
    lines = "".join(f"+{line.format(index)}\n" for index in range(number))
    return f"@@ -9,1 +9,{lines.count(chr(10)) + 1} @@ def g(x):\n     a = 1\n{lines}"


def _patch(text: str) -> None:
    patch_files.findings_in("a.patch", text.encode())


def _pins(text: str) -> None:
    for read in (python.of_lines, shell.of_script):
        read(ReadFile(Path(), "requirements.txt", text, ""))


def _suppressing(number: int) -> Callable[[], object]:
    found = findings(number)
    ignores = suppress.comments(b"x = 1  # unpatch: ignore\n" * number)
    return lambda: suppress.apply(found, {"a.py": ignores}, [])


def _unreadable(data: bytes) -> None:
    with pytest.raises(Unreadable):
        parse(data)


def _reporting(number: int) -> Callable[[], object]:
    report = Report("/", number, findings(number))
    return lambda: (list(text_report.lines(report)), report.to_json())


def _comparing(number: int) -> Callable[[], object]:
    found = findings(number)
    return lambda: compare.new_findings(found, found[::2], {})


def _subtracting(number: int) -> Callable[[], object]:
    found = findings(number)
    counts = {"a.py": {"MCU601": number // 2}}
    return lambda: baseline.subtract(found, counts, Path("/b.json"), Path("/"), {"a.py"})


@pytest.mark.parametrize("stage", STAGES)
def test_stage(stage: str) -> None:
    check_growth(STAGES[stage], 500)


def test_uses_in_a_long_chain_of_conditions() -> None:
    """Each is asked for the conditions above it: that is the square, and must not be the cube."""

    def work(number: int) -> Callable[[], object]:
        branch = "    elif kind == {}:\n        return ModelType.encoder_and_decoder\n"
        code = "from megatron.core.enums import ModelType\ndef f(kind):\n    if kind:\n        pass\n"
        data = {"a.py": (code + "".join(map(branch.format, range(number)))).encode()}
        return lambda: uses_for(
            list(data), Project(data.__contains__, data.__getitem__), [releases("0.16.0", "0.19.2")]
        )

    work(1)()
    small, large = (seconds(work(number)) for number in (40, 160))
    assert large < small * 30, f"{small:.3f} -> {large:.3f}"


def test_files_are_not_read_for_each_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what no release has, other files are asked whether they set it: once for all uses."""

    def times_read(uses: int) -> int:
        lines = ["from megatron.core import parallel_state", *(f"parallel_state.none_{one}" for one in range(uses))]
        data = {"a.py": "\n".join(lines).encode(), "b.py": b"a = 1\n"}
        project, read = Project(data.__contains__, data.__getitem__), list[str]()
        text = project.text
        monkeypatch.setattr(project, "text", lambda path: (read.append(path), text(path))[1])
        assert len(uses_for(list(data), project, [releases("0.16.0", "0.19.2")])[0].affected) == uses
        return read.count("b.py")

    assert times_read(2) == times_read(20)
