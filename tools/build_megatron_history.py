"""Write `history.bin`, what each release of megatron-core defines, with digests; `gone.json` and `needs.json`.

python tools/build_megatron_history.py                       # every release that is known, fetched with pip
python tools/build_megatron_history.py --add 0.20.0          # and a new one
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

from mcore_unpatch.megatron import gone, history, needs
from mcore_unpatch.megatron.definitions import module_files, read_release
from mcore_unpatch.upgrade.sources import download

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "history.bin"

GONE = OUTPUT.with_name("gone.json")  # what scan asks of it, without the rest
NEEDS = OUTPUT.with_name("needs.json")


def main() -> None:
    """Fetch the releases, read them and write the file; the same bytes for the same releases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs="+", default=[], metavar="RELEASE")
    releases = [*history.releases(), *parser.parse_args().add]
    folders = {release: download(release) for release in releases}
    packed = history.pack({release: read_release(folder) for release, folder in folders.items()})
    OUTPUT.write_bytes(packed)
    history.clear()
    _write(GONE, gone.from_history())
    _write(NEEDS, needs.merged({name: needs.read(dict(module_files(folder))) for name, folder in folders.items()}))
    print(f"{OUTPUT.name}: {len(packed)} bytes, {len(releases)} releases")


def _write(path: Path, table: Mapping[str, object]) -> None:
    """One line for each name."""
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(facts)}" for name, facts in table.items())
    path.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
