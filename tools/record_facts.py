"""What the commands say of real repositories, as facts that two versions of the tool can be compared by.

    python tools/record_facts.py record --checkouts FOLDER --to FACTS [--unpatch PROGRAM] [--jobs 2] [NAME ...]
    python tools/record_facts.py compare OLD NEW [--draw 60] [--seed 1] [NAME ...]
    python tools/record_facts.py digests FACTS

`record` runs scan, upgrade and migrate, which print JSON, on every clone in FOLDER or on those named, and writes one
file for each: what is patched where, what becomes of it, what an upgrade does to it, what is edited. No sentence is
recorded. `compare` counts what differs, and draws some of it for a person to read. `digests` writes
tools/facts.json, by which `compare` knows the facts of a commit.
"""

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

Fact = dict[str, Any]
Key = tuple[str, ...]

LABELS = Path(__file__).parents[1] / "tests/tool/labels"
DIGESTS = Path(__file__).with_name("facts.json")
DEFAULT_TARGET = "0.19"  # of a repository without labels
STEP = ("0.16.1", "0.19.2")
PLACE = ("of", "path", "line", "target")
SPELLING = ("shape", "rule", "confidence", "temporary", "in_test", "replacement")
STATEMENT = ("kind", "exception", "path", "line", "when", "caller", "before")


def main() -> int:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("--checkouts", type=Path, required=True)
    one.add_argument("--to", type=Path, required=True)
    one.add_argument("--unpatch", default=str(Path(sys.executable).with_name("unpatch")))
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("names", nargs="*")
    other = commands.add_parser("compare")
    other.add_argument("old", type=Path)
    other.add_argument("new", type=Path)
    other.add_argument("--draw", type=int, default=0)
    other.add_argument("--seed", type=int, default=1)
    other.add_argument("names", nargs="*")
    commands.add_parser("digests").add_argument("facts", type=Path)
    options = parser.parse_args()
    if options.command == "record":
        return _record_all(options)
    if options.command == "compare":
        return _compare(options)
    DIGESTS.write_text(json.dumps(_digests(options.facts), indent=1) + "\n")
    return 0


# --- record ---------------------------------------------------------------------------------------------------------


def _record_all(options: argparse.Namespace) -> int:
    targets = {label["repository"].partition("/")[2]: label["judged"] for label in _labels()}
    folders = [folder for folder in sorted(options.checkouts.iterdir()) if folder.is_dir()]
    chosen = [folder for folder in folders if folder.name in (options.names or [folder.name])]
    chosen.sort(key=lambda folder: options.names.index(folder.name) if options.names else 0)
    options.to.mkdir(parents=True, exist_ok=True)

    def record(folder: Path) -> bool:
        began = time.monotonic()
        facts, errors = _facts(options.unpatch, folder, targets.get(folder.name, DEFAULT_TARGET))
        lines = ",\n".join(json.dumps(fact, sort_keys=True) for fact in facts)
        (options.to / f"{folder.name}.json").write_text(f"[\n{lines}\n]\n")
        print(f"{folder.name}: {len(facts)} facts, {time.monotonic() - began:.0f} s", *errors, sep="\n  ", flush=True)
        return not errors

    with ThreadPoolExecutor(options.jobs) as pool:
        return 0 if all(list(pool.map(record, chosen))) else 1


def _labels() -> Iterable[dict[str, Any]]:
    return (
        json.loads(file.read_text()) for name in ("field", "held_out", "unseen") for file in LABELS.glob(f"{name}/*")
    )


def _facts(program: str, folder: Path, target: str) -> tuple[list[Fact], list[str]]:
    errors: list[str] = []

    def ask(*arguments: str) -> dict[str, Any]:
        command = [program, *arguments, "--output-format", "json", "--jobs", "1"]
        environment = os.environ | {"MCORE_UNPATCH_NO_CACHE": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        try:
            report: dict[str, Any] = json.loads(done.stdout)
        except json.JSONDecodeError:
            errors.append(f"unpatch {' '.join(arguments)}: exit code {done.returncode}: {done.stderr[-300:]}")
            return {}
        return report

    migration = ask("migrate", "--check", "--unsafe-fixes", "--target-mcore", target)
    facts = [*_patches(ask("scan", "--target-mcore", target), migration.get("edits", [])), *_edits("edit", migration)]
    facts += _edits("default edit", ask("migrate", "--check"))
    facts += _effects(ask("upgrade", "--all", "--from", STEP[0], "--to", STEP[1]))
    return sorted(facts, key=lambda fact: json.dumps([fact.get(name) for name in PLACE])), errors


def _patches(report: dict[str, Any], edits: list[Fact]) -> Iterable[Fact]:
    for found in (*report.get("findings", []), *report.get("done", [])):
        inside = [edit for edit in edits if edit["path"] == found["path"] and _overlap(edit["before"], found)]
        edited = _digest([(edit["before"]["text"], edit["after"]["text"]) for edit in inside]) if inside else None
        yield {
            **_place("patch", found, found["target"]),
            "spelling": {name: found.get(name) for name in SPELLING},
            "releases": found.get("live"),
            "verdict": [found.get("verdict"), found.get("fix")],
            "edit": edited,
        }


def _overlap(before: Fact, found: Fact) -> bool:
    return bool(before["line"] <= found.get("end_line", found["line"]) and found["line"] <= before["end_line"])


def _effects(report: dict[str, Any]) -> Iterable[Fact]:
    for patch in report.get("patches", []):
        said = sorted([[one.get(name) for name in STATEMENT] for one in patch.get("statements", [])], key=json.dumps)
        yield {
            **_place("effect", patch, patch["target"]),
            "urgency": patch.get("urgency"),
            "change": [patch.get("change"), patch.get("moved_to")],
            "statements": said,
        }
    for kind in ("uses", "fits_neither"):
        for use in report.get(kind, []):
            statement = {name: use.get(name) for name in (*STATEMENT, "in_test") if name not in PLACE}
            yield {**_place(kind, use, use.get("name") or ""), **statement}


def _edits(kind: str, report: dict[str, Any]) -> Iterable[Fact]:
    for edit in report.get("edits", []):
        before, after = edit["before"], edit["after"]
        place = _place(kind, {"path": edit["path"], "line": before["line"]}, edit["rule"])
        yield {**place, "level": edit.get("level"), "edit": _digest([before["text"], after["text"]])}
    if kind == "edit":
        for remark in report.get("remarks", []):
            yield {**_place("remark", remark, remark.get("rule") or ""), "kind": remark.get("kind")}


def _place(kind: str, data: dict[str, Any], target: str) -> Fact:
    return {"of": kind, "path": data["path"], "line": data["line"], "target": target}


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:12]


# --- compare --------------------------------------------------------------------------------------------------------


def _compare(options: argparse.Namespace) -> int:
    old, new = _read(options.old, options.names), _read(options.new, options.names)
    same = {file.stem for file in options.old.glob("*.json")} & {file.stem for file in options.new.glob("*.json")}
    old, new = ({key: fact for key, fact in facts.items() if key[0] in same} for facts in (old, new))
    known = json.loads(DIGESTS.read_text()) if DIGESTS.exists() else {}
    strange = sorted(name for name, digest in _digests(options.old).items() if known.get(name) != digest)
    print("old: " + (f"not as in {DIGESTS.name}: {', '.join(strange)}" if strange else f"as in {DIGESTS.name}"))
    differing = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
    for kind in sorted({key[1] for key in (*old, *new)}):
        _report_kind(
            kind, {k: v for k, v in old.items() if k[1] == kind}, {k: v for k, v in new.items() if k[1] == kind}
        )
    places = Counter(key[0] for key in differing)
    print("by repository: " + ", ".join(f"{name} {count}" for name, count in places.most_common()))
    for key in random.Random(options.seed).sample(differing, min(options.draw, len(differing))):
        print("\n" + " ".join(key))
        _show(old.get(key), new.get(key))
    return 0


def _report_kind(kind: str, old: dict[Key, Fact], new: dict[Key, Fact]) -> None:
    both = old.keys() & new.keys()
    fields = Counter(name for key in both for name in old[key] if old[key][name] != new[key].get(name))
    changed = sum(old[key] != new[key] for key in both)
    rate = (len(old.keys() ^ new.keys()) + changed) / max(1, len(old.keys() | new.keys()))
    said = ", ".join(f"{name} {count}" for name, count in fields.most_common())
    gone, more = len(old.keys() - new.keys()), len(new.keys() - old.keys())
    print(f"{kind}: {len(old)} -> {len(new)}, gone {gone}, new {more}, changed {changed} ({rate:.1%}) {said}")


def _show(old: Fact | None, new: Fact | None) -> None:
    def names(fact: Fact | None) -> list[str]:
        return [name for name in fact or {} if name not in PLACE]

    for name in dict.fromkeys([*names(old), *names(new)]):
        was, now = (json.dumps(fact.get(name)) if fact else "-" for fact in (old, new))
        if was != now:
            print(f"  {name}: {was} -> {now}")


def _read(folder: Path, names: list[str]) -> dict[Key, Fact]:
    """All facts by repository and place; those of one place are numbered."""
    facts: dict[Key, Fact] = {}
    for file in sorted(folder.glob("*.json")):
        if names and file.stem not in names:
            continue
        times: Counter[Key] = Counter()
        for fact in json.loads(file.read_text()):
            place = (file.stem, *(str(fact[name]) for name in PLACE))
            facts[*place, str(times[place])] = fact
            times[place] += 1
    return facts


def _digests(folder: Path) -> dict[str, str]:
    return {file.stem: _digest(file.read_text()) for file in sorted(folder.glob("*.json"))}


if __name__ == "__main__":
    sys.exit(main())
