"""Is what `unpatch upgrade` says true? Ask Python itself, with released wheels and public repositories.

    python tools/upgrade_oracle.py --sources FOLDER --pairs 0.15.3:0.16.1,0.16.1:0.17.1 CHECKOUT...

FOLDER holds the unpacked wheels by version (`FOLDER/0.16.1/megatron/core`). For each release a child process

- imports every module of a checkout that says Megatron, each in a fork of its own; packages that are not installed
  are stubs, which an import hook makes for the checkout's files alone, never for Megatron's;
- resolves every name that the checkout uses and binds every call with `inspect.signature(...).bind`.

Then each new exception is looked for in the report, and each "will raise" of the report is held to what was seen.
"""

import argparse
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

_LIMIT = 60  # seconds for the import of one module
# Imported once, before any fork: what nearly every module of a checkout needs.
_WARM = (
    "torch",
    "megatron.core",
    "megatron.core.models.gpt.gpt_model",
    "megatron.core.models.gpt.gpt_layer_specs",
    "megatron.core.optimizer",
    "megatron.core.distributed",
    "megatron.core.pipeline_parallel",
    "megatron.core.dist_checkpointing",
)


# --- in the child: one release --------------------------------------------------------------------------------------


class _Stub(types.ModuleType):
    """A package that is not installed: whatever is asked of it is there, and is a class of its own."""

    __path__: ClassVar[list[str]] = []
    __version__ = "99.0"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Anything(name, (), {})
        setattr(self, name, made)
        return made


class _Anything(type):
    """A class that can be called, decorated with, subscripted, compared and derived from."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") and name != "__version__":
            raise AttributeError(name)
        return _Anything(name, (), {})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and not kwargs and inspect.isroutine(args[0]):
            return args[0]  # a decorator
        return _Anything(cls.__name__, (), {})

    def __getitem__(cls, _: Any) -> Any:
        return cls

    def __iter__(cls) -> Iterator[Any]:
        return iter(())

    def __or__(cls, other: Any) -> Any:
        return cls

    __ror__ = __or__

    def __bool__(cls) -> bool:
        return True


class _Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder of all: stubs, for importers outside of Megatron."""

    def __init__(self, megatron: str, own: set[str]) -> None:
        self._megatron, self._own = megatron, own

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        top = name.partition(".")[0]
        if top in self._own or top == "megatron" or top in sys.stdlib_module_names:
            return None
        parent = sys.modules.get(top)
        if parent is not None and not isinstance(parent, _Stub):
            return None
        frame = sys._getframe(1)
        while frame.f_back is not None and "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        if frame.f_code.co_filename.startswith(self._megatron):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Stub(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""


def _root_of(file: Path) -> Path:
    folder = file.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _imported(file: Path, checkout: Path) -> dict[str, Any]:
    """What importing one file gives: nothing, or an exception and the deepest line of the checkout."""
    root = _root_of(file)
    sys.path[:0] = [str(root), str(checkout)]
    name = ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
    try:
        importlib.import_module(name)
    except BaseException as error:
        frames = [
            frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(str(checkout))
        ]
        where = f"{Path(frames[-1].filename).relative_to(checkout)}:{frames[-1].lineno}" if frames else ""
        return {"exception": type(error).__name__, "message": str(error)[:300], "where": where}
    return {}


def _in_a_fork(file: Path, checkout: Path) -> dict[str, Any]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        signal.alarm(_LIMIT)
        os.write(writer, json.dumps(_imported(file, checkout)).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as opened:
        told = opened.read()
    os.waitpid(child, 0)
    return json.loads(told) if told else {"exception": "Died", "message": "", "where": ""}


def _resolved(name: str) -> Any:
    """The object of a dotted name; raises ImportError or AttributeError as a use would."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
            continue
        for part in parts[length:]:
            found = found.__dataclass_fields__[part] if _is_field(found, part) else getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def _is_field(found: Any, part: str) -> bool:
    return not hasattr(found, part) and part in getattr(found, "__dataclass_fields__", ())


def _probed(probe: dict[str, Any]) -> str:
    """What one use raises, by its name; empty for nothing, `?` where Python does not tell."""
    try:
        found = _resolved(probe["name"])
    except (ImportError, AttributeError) as error:
        return type(error).__name__
    except Exception as error:
        return f"?{type(error).__name__}"
    if probe["call"] is None:
        return ""
    positions, keywords, partial = probe["call"]
    owner = _resolved(probe["name"].rpartition(".")[0])
    if inspect.isclass(owner) and inspect.isfunction(found) and not probe["through_class"]:
        static = isinstance(inspect.getattr_static(owner, probe["name"].rpartition(".")[2], None), staticmethod)
        positions += not static
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return "?"
    bind = signature.bind_partial if partial else signature.bind
    try:
        bind(*[None] * positions, **dict.fromkeys(keywords))
    except TypeError:
        return "TypeError"
    return ""


def _child(task: dict[str, Any]) -> None:
    source, checkout = Path(task["source"]), Path(task["checkout"])
    sys.path.insert(0, str(source))
    for name in _WARM:
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"{source.name}: {name}: {error!r}", file=sys.stderr)
    own = {path.stem if path.suffix else path.name for path in checkout.iterdir()}
    found: dict[str, Any] = {"probes": [_probed(probe) for probe in task["probes"]], "modules": {}}
    sys.meta_path.append(_Stubs(str(source), own))
    for module in task["modules"]:
        found["modules"][module] = _in_a_fork(checkout / module, checkout)
    Path(task["result"]).write_text(json.dumps(found), encoding="utf-8")


# --- in the parent: the report beside it ----------------------------------------------------------------------------


@dataclass
class Score:
    """What was seen of one checkout and one pair of releases."""

    imported: int = 0  # modules that the older release imports
    broke: int = 0  # of them, those that the newer one does not
    predicted: int = 0
    said: int = 0  # "will raise" that Python could be asked about
    true: int = 0
    before: int = 0  # of them, those that raise on the older release too, as a name that came later does
    probes: int = 0
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)


def _run(source: Path, script: Path, *arguments: str, cwd: Path) -> None:
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, script, *arguments], env=env, cwd=cwd, check=True)


def observe(
    source: Path, checkout: Path, modules: list[str], probes: list[dict[str, Any]], run: Callable[..., Any] = _run
) -> dict[str, Any]:
    """What a process sees under one release: how each module's import ends, and each probe."""
    with tempfile.TemporaryDirectory() as folder:
        source = source.resolve()
        task = {"source": str(source), "checkout": str(checkout), "modules": modules, "probes": probes}
        task["result"] = f"{folder}/result.json"
        (Path(folder) / "task.json").write_text(json.dumps(task), encoding="utf-8")
        run(source, Path(__file__), "--child", f"{folder}/task.json", cwd=Path(folder))
        found: dict[str, Any] = json.loads(Path(task["result"]).read_text(encoding="utf-8"))
        return found


def _probe(demand: Any) -> dict[str, Any]:
    call = demand.call
    form = [call.positions, list(call.keywords), call.star or call.double_star] if call is not None else None
    return {"name": demand.name, "call": form, "through_class": demand.through_class}


def judge(
    checkout: Path, sources: Path, pairs: list[tuple[str, str]], imports: bool = True, run: Callable[..., Any] = _run
) -> dict[tuple[str, str], Score]:
    """Read a checkout, ask Python under each release, and compare."""
    from mcore_unpatch.megatron import known
    from mcore_unpatch.repository.discover import discover
    from mcore_unpatch.repository.paths import is_test
    from mcore_unpatch.scanner.names.project import Project
    from mcore_unpatch.scanner.sources.work_tree import WorkTree
    from mcore_unpatch.upgrade.uses import demands_of, uses_of

    checkout = checkout.resolve()
    found = discover([checkout])
    files = WorkTree(found.top)
    project = Project(files.exists, files.read)
    paths = [path for path in found.own if not is_test(path)]
    modules: list[str] = []
    asked: dict[str, dict[str, Any]] = {}
    for path in paths:
        if b"megatron" in project.data(path):
            modules.append(path)
            project.begin()
            for demand in demands_of(project.resolver(path)):
                if not demand.by_name or demand.call is not None:
                    probe = _probe(demand)
                    asked.setdefault(json.dumps(probe), probe)
    probes = list(asked.values())
    modules = modules if imports else []
    seen = {
        release: observe(sources / release, checkout, modules, probes, run)
        for release in dict.fromkeys(one for pair in pairs for one in pair)
    }
    scores = {}
    for old, new in pairs:
        score = scores[old, new] = Score()
        uses = uses_of(paths, Project(files.exists, files.read), known.model(old), known.model(new)).affected
        raising = [use for use in uses if use.will_raise]
        lines = {f"{use.path}:{use.line}" for use in raising}
        for module in modules:
            before, after = seen[old]["modules"][module], seen[new]["modules"][module]
            if before:
                continue
            score.imported += 1
            if after:
                score.broke += 1
                told = after["where"] in lines
                score.predicted += told
                if not told:
                    score.missed.append(f"{module}: {after['exception']} at {after['where']}: {after['message'][:120]}")
        outcome = {
            key: (then, now)
            for key, then, now in zip(asked, seen[old]["probes"], seen[new]["probes"], strict=True)
            if not then.startswith("?") and not now.startswith("?")
        }
        score.probes = len(outcome)
        for use in raising:
            key = json.dumps(_probe(use.demand)) if use.demand is not None else ""
            if key in outcome and use.exception != "ValueError":
                score.said += 1
                then, now = outcome[key]
                score.true += bool(now)
                score.before += bool(now) and bool(then)
                if not now:
                    score.false.append(f"{use.path}:{use.line}: {use.sentence} (seen: {then}, {now})")
    return scores


def main() -> None:
    """Print a table, and what was missed or wrong."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--child", help=argparse.SUPPRESS)
    options.add_argument("--sources", type=Path)
    options.add_argument("--pairs", default="0.15.3:0.16.1,0.16.1:0.17.1,0.17.1:0.18.2,0.18.2:0.19.2")
    options.add_argument("--no-imports", action="store_true", help="ask for names and calls alone")
    options.add_argument("checkouts", type=Path, nargs="*")
    given = options.parse_args()
    if given.child:
        _child(json.loads(Path(given.child).read_text(encoding="utf-8")))
        return
    pairs = [(old, new) for old, _, new in (one.partition(":") for one in given.pairs.split(","))]
    missing = [one for pair in pairs for one in pair if given.sources is None or not (given.sources / one).is_dir()]
    if missing:
        options.error(f"--sources has to name a folder with the source of each release; there is no {missing[0]} in it")
    print("| repository | step | imported | broke | predicted | said to raise | true | before too | uses asked |")
    print("|---|---|---|---|---|---|---|---|---|")
    notes = []
    for checkout in given.checkouts:
        for (old, new), score in judge(checkout, given.sources, pairs, not given.no_imports).items():
            row = (score.imported, score.broke, score.predicted, score.said, score.true, score.before, score.probes)
            print(f"| {checkout.name} | {old} to {new} | {' | '.join(map(str, row))} |", flush=True)
            notes += [f"missed, {checkout.name}, {old} to {new}: {one}" for one in score.missed]
            notes += [f"false, {checkout.name}, {old} to {new}: {one}" for one in score.false]
    print("", *notes, sep="\n")


if __name__ == "__main__":
    main()
