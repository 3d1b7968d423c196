"""Write `codemods/seams/copies/upstream.json`: the bodies of GPTModel's forward, release by release.

python tools/build_gpt_bodies.py                       # every release that is known, fetched with pip
python tools/build_gpt_bodies.py --add 0.20.0          # and a new one
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

from mcore_unpatch.codemods.seams.copies.upstream import (
    CALLED,
    METHODS,
    calls_of,
    digest,
    hook_at,
    keywords_of,
    of_model,
)
from mcore_unpatch.library.sources import Files
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.upgrade.sources import download

OUTPUT = Path(__file__).parents[1] / "codemods/seams/copies/upstream.json"


def bodies(files: Files) -> dict[str, dict[str, Any]]:
    """The bodies of one release: digests up to the decoder's output, up to the hook and behind it; what it calls."""
    tree = ast.parse(files["megatron/core/models/gpt/gpt_model.py"])
    model = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "GPTModel")
    found = {}
    for method in model.body:
        if isinstance(method, ast.FunctionDef) and method.name in METHODS:
            body = method.body[1:]  # without the docstring
            decoder = next((at + 1 for at, one in enumerate(body) if calls_of(one, "decoder")), 0)
            hook = max(decoder, hook_at(body))
            found[method.name] = {
                "before": [digest(one) for one in body[:decoder]],
                "hook": [digest(one) for one in body[decoder:hook]],
                "end": [digest(one) for one in body[hook:]],
                "calls": sorted({name for one in body[:hook] for name in of_model(one)}),
                "passed": {name: sorted(keywords_of(body, name)) for name in CALLED},
            }
    return found


def main() -> None:
    """Fetch the releases, read them and write the file; the same bytes for the same releases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs="+", default=[], metavar="RELEASE")
    versions: dict[str, list[dict[str, Any]]] = {name: [] for name in METHODS}
    for release in [*RELEASES, *parser.parse_args().add]:
        for name, body in bodies(download(release)).items():
            known = next((one for one in versions[name] if {**one, "releases": []} == {**body, "releases": []}), None)
            if known is None:
                versions[name].append({"releases": [release], **body})
            else:
                known["releases"].append(release)
    OUTPUT.write_text(json.dumps(versions, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
