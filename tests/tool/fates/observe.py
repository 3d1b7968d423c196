"""Run every case on the releases that fates.json names, and compare what happens with what it says.

    .venv-test/bin/python tests/tool/fates/observe.py --wheels FOLDER [--case NAME ...] [--release R ...] [--write]

FOLDER holds each release unpacked in a folder of its own, made with
`pip install --no-deps --target FOLDER/0.18.2 megatron-core==0.18.2`. Releases before 0.14 have wheels for x86_64 and
Python 3.11 at most: `pip download --no-deps --only-binary :all: --platform manylinux_2_28_x86_64 --python-version 3.11`
gets one, and `python -m zipfile -e WHEEL FOLDER/0.12.3` unpacks it; no compiled part of it is used. FOLDER/extra is for
what Megatron imports and the tests do not need: `pip install --no-deps --target FOLDER/extra einops`.

Each case runs on each release in a process of its own, forked from one that has imported the release and nothing else
of the case: a patch comes after the library, as in a trainer.
Its driver (in drivers/) lets Megatron itself call what was patched. The result of the driver is the effect of the
patch: what it does to the library's result beside the same library without it. `values` is "same" where both releases
show the same effect, "changed" where they do not, and null where one of them raises. `at` is the line of the case that
was running when it raised, `ran` whether Megatron came to its code, `trigger` the line of Megatron that called it, and
`upstream` whether the definition of the target is the same on both releases, apart from words and types.

Without --write the exit code is 1 where something else happened than fates.json says. With --write the observed
fields are written into it: those that a person wrote (case, kind, from, to, line, target, why) stay.
"""

import argparse
import importlib
import json
import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FATES = HERE / "fates.json"
OUTCOME = ("outcome", "exception", "when", "at", "ran")
LIMIT = 120  # seconds for one case on one release


def drivers() -> dict[str, str]:
    """The module of drivers/ that drives each case."""
    known: dict[str, str] = {}
    for path in sorted((HERE / "drivers").glob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("def ") and not line.startswith("def _"):
                known[line[4 : line.index("(")]] = path.stem
    return known


@cache
def targets() -> dict[str, str]:
    """What each case patches."""
    return {fate["case"]: fate["target"] for fate in json.loads(FATES.read_text(encoding="utf-8"))}


def run_case(case: str, release: str, wheels: Path, answer: Connection) -> None:
    """In a process of its own: drive one case on one release and send what came of it."""
    import definitions
    import staging
    from harness.cpu import on_the_cpu

    stage = staging.Stage(case, release, wheels)
    effect, problem = None, None
    definition = definitions.digest(targets()[case])
    try:
        drive: Callable[[Any], Any] = getattr(importlib.import_module(f"drivers.{drivers()[case]}"), case)
        with on_the_cpu():
            effect = json.loads(json.dumps(drive(stage)))
    except staging.Raised:
        pass
    except BaseException:
        sys.setprofile(None)
        problem = "".join(traceback.format_exc().splitlines(keepends=True)[-6:])
    seen = {"outcome": stage.outcome, "trigger": stage.trigger, "effect": effect, "problem": problem}
    answer.send({**seen, "definition": definition})
    answer.close()
    os._exit(0)


def run_release(release: str, cases: list[str], wheels: Path, answers: Connection) -> None:
    """In a process of its own: import one release, and fork a process for each of its cases."""
    sys.path[:0] = [str(wheels / release), str(HERE), str(HERE / "cases"), str(HERE.parents[1] / "compat")]
    sys.path.append(str(wheels / "extra"))
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    import megatron

    megatron.__path__ = [str(wheels / release / "megatron")]  # never the release that is installed beside the tests
    for name in ("models.gpt.gpt_model", "models.gpt.gpt_layer_specs", "optimizer", "pipeline_parallel.schedules"):
        importlib.import_module(f"megatron.core.{name}")
    for case in cases:
        answers.send(in_a_process(run_case, case, release, wheels))
    os._exit(0)


def in_a_process(work: Callable[..., None], *arguments: Any) -> dict[str, Any]:
    """The one answer of a forked process that ends after it."""
    here, there = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=work, args=(*arguments, there))
    child.start()
    there.close()
    try:
        seen: dict[str, Any] = here.recv() if here.poll(LIMIT) else {"problem": f"no answer after {LIMIT} s"}
    except EOFError:
        seen = {"problem": "the process died"}
    child.kill()
    child.join()
    return seen


def observe(wanted: list[tuple[str, str]], wheels: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What came of each (case, release)."""
    seen = {}
    for release in sorted({release for _, release in wanted}):
        cases = [case for case, its_release in wanted if its_release == release]
        here, there = multiprocessing.Pipe(duplex=False)
        child = multiprocessing.get_context("fork").Process(target=run_release, args=(release, cases, wheels, there))
        child.start()
        there.close()
        for case in cases:
            try:
                seen[case, release] = here.recv()
            except EOFError:
                sys.exit(f"megatron-core {release} cannot be imported from {wheels / release}")
        child.join()
    return seen


def fate_of(older: dict[str, Any], newer: dict[str, Any]) -> dict[str, Any]:
    """The observed fields of a fate."""
    import definitions

    fields = {
        side: {name: seen["outcome"][name] for name in OUTCOME} for side, seen in (("older", older), ("newer", newer))
    }
    both_run = older["outcome"]["outcome"] == newer["outcome"]["outcome"] == "runs"
    values = ("same" if older["effect"] == newer["effect"] else "changed") if both_run else None
    upstream = definitions.compared(older["definition"], newer["definition"])
    return {**fields, "values": values, "upstream": upstream, "trigger": newer["trigger"]}


def main() -> int:
    """Observe, and compare or write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", type=Path, required=True, help="a folder with each release unpacked in its own")
    parser.add_argument("--case", action="append", help="only this case; may be given again")
    parser.add_argument("--release", action="append", help="only show what happens on this release; compare nothing")
    parser.add_argument("--write", action="store_true", help="write what was observed into fates.json")
    arguments = parser.parse_args()
    wheels = arguments.wheels.resolve()
    fates = json.loads(FATES.read_text(encoding="utf-8"))
    known = drivers()
    cases = arguments.case or sorted({fate["case"] for fate in fates})
    for case in cases:
        if case not in known or not (HERE / "cases" / f"{case}.py").is_file():
            parser.error(f"there is no case with a driver named {case}")
    if not wheels.is_dir():
        parser.error(f"{wheels} is not a folder")
    import torch  # noqa: F401 - imported once, before anything is forked

    if arguments.release:
        seen = observe([(case, release) for case in cases for release in arguments.release], wheels)
        for (case, release), what in seen.items():
            print(case, release, json.dumps(what, indent=1))
        return 0
    return compare([fate for fate in fates if fate["case"] in cases], fates, wheels, write=arguments.write)


def compare(wanted: list[Any], fates: list[Any], wheels: Path, *, write: bool) -> int:
    """Observe the wanted fates and hold them to what was seen."""
    pairs = {(fate["case"], fate[side]): None for fate in wanted for side in ("from", "to")}
    seen = observe(list(pairs), wheels)
    wrong = 0
    for fate in wanted:
        case, pair = fate["case"], (fate["from"], fate["to"])
        older, newer = (seen[case, release] for release in pair)
        problems = [f"{r}: {s['problem']}" for r, s in zip(pair, (older, newer), strict=True) if s["problem"]]
        label = f"{case} {pair[0]} -> {pair[1]}"
        if problems:
            wrong += 1
            print(f"NOT SEEN  {label}\n" + "\n".join(problems), flush=True)
            continue
        observed = fate_of(older, newer)
        differs = {name: (fate.get(name), value) for name, value in observed.items() if fate.get(name) != value}
        said = f"{observed['newer']['exception'] or observed['values']} {newer['outcome'].get('message', '')}".strip()
        if differs:
            wrong += 1
            print(f"{'written ' if write else 'DIFFERS '}  {label}: {said}", flush=True)
            for name, (was, now) in differs.items():
                print(f"          {name}: {was} -> {now}")
            for side in (older, newer):
                print(f"          {side['outcome'].get('message')} | {side['effect']}")
            if write:
                fate.update(observed)
        else:
            print(f"agrees    {label}: {said}", flush=True)
    if write:
        lines = ",\n".join(json.dumps(fate) for fate in fates)
        FATES.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    print(f"{wrong} of {len(wanted)} fates differ")
    return int(wrong > 0 and not write)


if __name__ == "__main__":
    sys.exit(main())
