"""How the next core does on the labelled repositories: the gate that it has to pass before it replaces the scanner.

    python tools/score_core.py CHECKOUTS [NAME ...]

CHECKOUTS holds each repository at the commit of its labels, in a folder of its name. One process for each, so that its
seconds and its memory are its own. This goes with the switch: then `unpatch scan` is what the labels are held to.
"""

import argparse
import gc
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DEEP = 6_000  # a question about a name leads through as many calls
SKIPPED = {".git", "node_modules"}
UNJUDGED = {"rule": "MCU101", "in_test": False, "seam": "none", "verdict": "keep"}  # what a label is not compared in
VERDICTS = {"stays": "keep", "by hand": "steps", "goes": "delete", "moves": "rewrite", "done": "done"}


def main() -> None:
    """Scan each checkout, then print the table, what was missed and what is not labelled."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--one", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        json.dump(scanned(options.checkouts, options.one), sys.stdout)
        return
    sys.path.insert(0, str(ROOT / "tests/tool/accuracy"))
    import scoring

    rows = []
    for repository in (one for name in scoring.SETS for one in scoring.repositories(name)):
        folder = options.checkouts / repository.name
        if folder.is_dir() and repository.name in (options.names or [repository.name]):
            program = [sys.executable, "-P", __file__, "--one", repository.judged, str(folder)]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
            made = json.loads(done.stdout)
            print(f"{repository.name:20} {made['seconds']:6.1f} s of CPU {made['megabytes']:5.0f} MB", flush=True)
            rows.append(scoring.score(repository, made["findings"]))
    total = sum(rows, scoring.Score("all"))
    print(scoring.table(rows))
    for title in ("missed", "false", "wrong_lives", "promises", "other", "weaker"):
        lines = getattr(total, title)
        print("", f"{title}:", *(f"  {line}" for line in lines), sep="\n")


def scanned(folder: Path, judged: str) -> dict[str, Any]:
    """The patches of a folder as findings with their verdicts on a release, and what they cost."""
    gc.disable()
    sys.setrecursionlimit(DEEP)
    from mcore_unpatch.code.index import Index, read_folder
    from mcore_unpatch.code.names import Names
    from mcore_unpatch.effects.judge import Judge
    from mcore_unpatch.effects.verdicts import Verdicts
    from mcore_unpatch.megatron import packed
    from mcore_unpatch.megatron.answers import answers
    from mcore_unpatch.megatron.parts import TELLS
    from mcore_unpatch.patches.alive import alive
    from mcore_unpatch.patches.find import Finder
    from mcore_unpatch.patches.patch_files import patch_files

    began = time.process_time()
    library, releases = packed.library(), packed.releases()
    finder = Finder(Names(Index(read_folder(folder)), library))
    patches = finder.all()
    judge = Judge(finder.names, patches)
    guards = judge.guards
    every = [packed.details().release(label) for label in packed.packed().labels]
    asked = [one for one in every if one.label.startswith(f"{judged}.") or one.label == judged][-1:]
    verdicts = Verdicts(judge, answers(), TELLS, every)
    labels = [release.label for release in releases[:-1]]
    findings = [
        {
            **UNJUDGED,
            "path": patch.path,
            "line": patch.line,
            "end_line": getattr(patch.place, "end_lineno", patch.line),
            "target": patch.target,
            "shape": str(patch.spelling),
            "confidence": str(patch.sure),
            "temporary": patch.temporary,
            "verdict": VERDICTS[verdicts.of(patch, asked).fate],
            "live": " or ".join(_ranges(labels, [truth is not False for truth in alive(guards, patch, releases)])),
        }
        for patch in patches
    ]
    whole = {"shape": "patch-file", "confidence": "certain", "temporary": False, "live": "all"}
    for one in patch_files(dict(_patch_files_below(folder)), library):
        place = {"path": one.path, "line": one.line, "end_line": one.line, "target": one.modules[0]}
        findings.append({**UNJUDGED, **whole, **place})
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"findings": findings, "seconds": time.process_time() - began, "megabytes": memory}


def _patch_files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    from mcore_unpatch.patches.patch_files import ENDINGS

    for here, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED]
        for file in (Path(here, name) for name in files if name.endswith(ENDINGS)):
            yield file.relative_to(folder).as_posix(), file.read_bytes()


def _ranges(labels: Sequence[str], reached: Sequence[bool]) -> Iterator[str]:
    """The releases on which a place is reached, as specifiers; the last truth is of every later release."""
    if len(set(reached)) == 1:
        yield "all" if reached[0] else "none"
        return
    starts = [at for at, truth in enumerate(reached) if truth and (at == 0 or not reached[at - 1])]
    for start in starts:
        end = next((at for at in range(start, len(reached)) if not reached[at]), None)
        if start == len(labels):
            yield f">{labels[-1]}"
        else:
            bounds = [f">={labels[start]}"] * (start > 0) + ([f"<={labels[end - 1]}"] if end is not None else [])
            yield ",".join(bounds)


if __name__ == "__main__":
    main()
