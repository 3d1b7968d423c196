"""Compares the shims with the trainers they stand for: arguments, defaults and what is returned.

    python tools/shim_drift.py FOLDER [FOLDER ...]     # checkouts, unpacked wheels, or folders of them
    python tools/shim_drift.py --pypi                  # the newest wheels of those that PyPI has

Prints a table with the commit or release that was read, and exits with 1 if a shim has drifted: an argument is missing
or stands elsewhere, a default differs, or the result has another structure. Both sides are read and not imported.
"""

import argparse
import ast
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPAT = ROOT / "compat"
ON_PYPI = ("verl", "skyrl")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Shim:
    """A file of ours, the file of the trainer it stands for, and the functions; none: all public ones of theirs."""

    ours: str
    theirs: str
    functions: tuple[str, ...] = ()


_MODEL_UTILS = "skyrl/backends/skyrl_train/distributed/megatron/model_utils.py"
SHIMS: dict[str, tuple[Shim, ...]] = {
    "verl": tuple(
        Shim(f"verl/{name}.py", f"verl/models/mcore/{name}.py")
        for name in ("model_forward_fused", "mtp_patch", "model_forward_1f1b_overlap")
    ),
    "nemo_rl": (
        Shim("nemo_rl.py", "nemo_rl/distributed/model_utils.py",
             ("patch_gpt_model_forward_for_linear_ce_fusion",)),
        Shim("nemo_rl.py", "nemo_rl/distributed/model_utils.py",
             ("from_parallel_hidden_states_to_logprobs",)),
    ),
    "skyrl": (
        Shim("skyrl.py", _MODEL_UTILS,
             ("from_parallel_hidden_to_logprobs", "from_parallel_hidden_to_logprobs_packed_sequences",
              "_fused_vocab_parallel_entropy_from_hidden", "from_parallel_hidden_to_entropy_packed_sequences")),
    ),
}  # fmt: skip

# Differences that are meant, with the reason: by function, and argument where there is one.
MEANT: dict[str, str] = {}


def functions_in(file: Path) -> dict[str, Function]:
    """The functions and methods of a file, and of a factory the function that it makes, as `factory()`."""
    found: dict[str, Function] = {}
    tree = ast.parse(file.read_text("utf-8"))
    scopes: list[list[ast.stmt]] = [tree.body, *[node.body for node in tree.body if isinstance(node, ast.ClassDef)]]
    for node in (node for body in scopes for node in body):
        if isinstance(node, Function):
            found.setdefault(node.name, node)
            last = node.body[-1]
            made = {inner.name: inner for inner in node.body if isinstance(inner, Function)}
            if isinstance(last, ast.Return) and isinstance(last.value, ast.Name) and last.value.id in made:
                found[f"{node.name}()"] = made[last.value.id]
    return found


def arguments_of(function: Function) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Name and default of what may come by position, and of what must come by keyword."""
    given = function.args
    positional = [arg.arg for arg in (*given.posonlyargs, *given.args) if arg.arg != "self"]
    defaults = [ast.unparse(value) for value in given.defaults]
    by_place: dict[str, str | None] = dict.fromkeys(positional)
    by_place.update(zip(positional[len(positional) - len(defaults) :], defaults, strict=True))
    pairs = zip(given.kwonlyargs, given.kw_defaults, strict=True)
    return by_place, {arg.arg: None if value is None else ast.unparse(value) for arg, value in pairs}


def structure_of(function: Function) -> str:
    """How many values come back, or what container, by the statements and else by the annotation; "" if unknown."""
    returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    for value in returned:
        if isinstance(value, ast.Tuple):
            return f"{len(value.elts)} values"
        if isinstance(value, ast.Dict):
            return "dict"
    note = function.returns
    name = ast.unparse(note.value if isinstance(note, ast.Subscript) else note) if note is not None else ""
    if name.lower() == "tuple" and isinstance(note, ast.Subscript) and isinstance(note.slice, ast.Tuple):
        return f"{len(note.slice.elts)} values"
    return "dict" if name.lower() == "dict" else ""


def drift(ours: Function, theirs: Function) -> Iterator[str]:
    """What a caller of theirs would notice."""
    mine, my_keywords = arguments_of(ours)
    places, keywords = arguments_of(theirs)
    name, known = theirs.name, {**mine, **my_keywords}
    takes_rest = ours.args.kwarg is not None
    if list(mine)[: len(places)] != list(places):
        for place, argument in enumerate(places):
            if argument not in mine and not takes_rest:
                yield f"has no argument {argument!r}"
            elif argument in mine and list(mine).index(argument) != place:
                yield f"{argument!r} stands at another place"
    for argument in keywords.keys() - known.keys() if not takes_rest else ():
        yield f"has no argument {argument!r}"
    for argument, default in {**places, **keywords}.items():
        if default is not None and known.get(argument, default) != default and f"{name}.{argument}" not in MEANT:
            yield f"{argument}={known[argument]} here, {argument}={default} there"
    for argument, default in known.items():
        if default is None and argument not in places and argument not in keywords:
            yield f"asks for {argument!r}, which no caller passes"
    mine_returned, returned = structure_of(ours), structure_of(theirs)
    if mine_returned and returned and mine_returned != returned:
        yield f"returns {mine_returned} here, {returned} there"


def report(trainer: str, root: Path) -> Iterator[tuple[str, str]]:
    """Each function of the trainer's shims, and what has become of it."""
    for shim in SHIMS[trainer]:
        file = root / shim.theirs
        if not file.is_file():
            yield shim.theirs, "the file is gone"
            continue
        ours, theirs = functions_in(COMPAT / shim.ours), functions_in(file)
        for name in shim.functions or [name for name in theirs if not name.startswith("_")]:
            own = name.lstrip("_")  # what a trainer imports from its own private functions is public here
            if name not in theirs:
                yield name, f"gone from {shim.theirs}"
            elif own not in ours:
                yield name, "has no shim"
            else:
                yield name, "; ".join(drift(ours[own], theirs[name])) or "same"


def read_as(root: Path) -> str:
    """The commit and its date, or the release of a wheel."""
    wheel = next(root.glob("*.dist-info"), None)
    if wheel is not None:
        return wheel.name.removesuffix(".dist-info")
    done = subprocess.run(
        ["git", "-C", str(root), "log", "-1", "--format=%h, %cs"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "no commit known"


def trainers_in(folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """Which trainer each folder, or each folder in it, is: told by the first file of its shims."""
    seen = set()
    for root in (path for folder in folders for path in [folder, *sorted(folder.iterdir())] if path.is_dir()):
        for trainer, shims in SHIMS.items():
            if (trainer, read_as(root)) not in seen and any((root / shim.theirs).is_file() for shim in shims):
                seen.add((trainer, read_as(root)))
                yield trainer, root


def newest_wheels(folder: Path) -> list[Path]:
    """The newest releases on PyPI, unpacked."""
    roots = []
    for package in ON_PYPI:
        wheels = folder / package
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "-d", wheels]
        subprocess.run([*map(str, command), package], check=True)
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(wheels)
        roots.append(wheels)
    return roots


def main() -> int:
    """Print the table; 1 if anything has drifted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--pypi", action="store_true", help="also the newest releases on PyPI")
    chosen = parser.parse_args()
    if not chosen.folders and not chosen.pypi:
        parser.error("name a folder, or pass --pypi")
    missing = [folder for folder in chosen.folders if not folder.is_dir()]
    if missing:
        parser.error(f"no folder {missing[0]}")
    drifted = read = 0
    with tempfile.TemporaryDirectory() as temporary:
        folders = chosen.folders + (newest_wheels(Path(temporary)) if chosen.pypi else [])
        print(f"Read on {date.today()}.\n\n| trainer | read | function | |\n|---|---|---|---|")
        for trainer, root in trainers_in(folders):
            for name, verdict in report(trainer, root):
                read += 1
                drifted += verdict != "same"
                print(f"| {trainer} | {read_as(root)} | `{name}` | {verdict} |")
    print(f"\n{read} functions read, {drifted} drifted.")
    return int(drifted > 0 or read == 0)


if __name__ == "__main__":
    raise SystemExit(main())
