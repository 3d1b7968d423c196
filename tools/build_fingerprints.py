"""Write `codemods/fingerprints/*.json`: hashes of the upstream functions that `unpatch migrate` replaces.

Hashes of normalised syntax trees and line numbers only, no code. To make them again:

    python tools/build_fingerprints.py verl WHEEL [WHEEL ...]
    python tools/build_fingerprints.py nemo_rl RELEASE=FOLDER [RELEASE=FOLDER ...]

Wheels come from `pip download --no-deps verl==RELEASE`; a folder holds a checkout of the release. Both are given from
the oldest to the newest.
"""

from __future__ import annotations

import argparse
import ast
import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mcore_unpatch.codemods.catalogue.nemo_rl import NEMO_RL
from mcore_unpatch.codemods.catalogue.verl import VERL
from mcore_unpatch.codemods.fingerprints.compare import fingerprint, origins, parts
from mcore_unpatch.codemods.shims.definitions import helping, reached, units

OUTPUT = Path(__file__).parents[1] / "codemods" / "fingerprints"
Read = Callable[[str], str | None]

# File -> the functions wanted of it.
WANTED: dict[str, dict[str, tuple[str, ...]]] = {
    contract.package: {shim.file: tuple(shim.names) for shim in contract.shims} | dict(contract.helpers)
    for contract in (VERL, NEMO_RL)
}


def from_wheel(path: Path) -> tuple[str, Read]:
    """The release of a wheel, and a way to read its files."""
    wheel = zipfile.ZipFile(path)
    present = set(wheel.namelist())
    return path.name.split("-")[1], lambda name: wheel.read(name).decode() if name in present else None


def from_folder(argument: str) -> tuple[str, Read]:
    """The same for RELEASE=FOLDER."""
    release, _, folder = argument.partition("=")
    return release, lambda name: (Path(folder) / name).read_text("utf-8") if (Path(folder) / name).is_file() else None


def of_file(text: str, wanted: tuple[str, ...], project: str, file: str, helpers: bool) -> dict[str, Any]:
    """Name -> hash and statements of the functions and of what they call; `import NAME` -> hash of its origin."""
    tree = ast.parse(text)
    everything = units(tree)
    roots = [unit for unit in everything if unit.binds & set(wanted) and not unit.is_import]
    closure = helping(wanted, everything) if helpers else reached(roots, everything, running=True)
    found: dict[str, Any] = {}
    for unit in closure:
        if not unit.is_import:
            steps = [list(part) for part in parts(unit.node, project)]
            found[unit.key] = {"hash": fingerprint(unit.node, project), "parts": steps}
    used = {name for unit in closure if unit.is_import for name in unit.binds}
    for name, digest in origins(tree, project, file).items():
        if name in used:
            found[f"import {name}"] = {"hash": digest, "parts": []}
    return found


def collect(project: str, releases: Iterable[tuple[str, Read]]) -> dict[str, Any]:
    """Every version of every function, with the releases that have it."""
    files: dict[str, dict[str, list[dict[str, Any]]]] = {file: {} for file in WANTED[project]}
    seen: list[str] = []
    for release, read in releases:
        seen.append(release)
        for file, wanted in WANTED[project].items():
            text = read(f"{project}/{file}")
            helpers = file in VERL.helpers
            for name, one in of_file(text, wanted, project, file, helpers).items() if text is not None else ():
                versions = files[file].setdefault(name, [])
                same = next((known for known in versions if known["hash"] == one["hash"]), None)
                if same is None:
                    same = {"releases": [], **one}
                    versions.append(same)
                same["releases"].append(release)
                same["parts"] = one["parts"]  # line numbers of the newest release that has it
    return {"project": project, "releases": seen, "files": files}


def main() -> None:
    """Read the releases and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("project", choices=sorted(WANTED))
    parser.add_argument("releases", nargs="+")
    arguments = parser.parse_args()
    releases = [from_folder(one) if "=" in one else from_wheel(Path(one)) for one in arguments.releases]
    data = collect(arguments.project, releases)
    (OUTPUT / f"{arguments.project}.json").write_text(compact(data), encoding="utf-8")


def compact(data: dict[str, Any]) -> str:
    """JSON with one line per version of a function, so that a change shows as a change of lines."""
    lines = [f'{{"project": {json.dumps(data["project"])}, "releases": {json.dumps(data["releases"])}, "files": {{']
    files = []
    for file, names in data["files"].items():
        rows = []
        for name, versions in sorted(names.items()):
            shown = ",\n   ".join(json.dumps(version, separators=(",", ":")) for version in versions)
            rows.append(f"  {json.dumps(name)}: [\n   {shown}]")
        files.append(f" {json.dumps(file)}: {{\n" + ",\n".join(rows) + "}")
    return "\n".join([*lines, ",\n".join(files), "}}"]) + "\n"


if __name__ == "__main__":
    main()
