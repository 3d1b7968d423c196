"""Write `mcore_unpatch/megatron/history.bin`: what each release of megatron-core defines, with digests; `gone.json`.

python tools/build_megatron_history.py                       # every release that is known, fetched with pip
python tools/build_megatron_history.py --add 0.20.0          # and a new one
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from mcore_unpatch.megatron import gone, history
from mcore_unpatch.megatron.definitions import read_release
from mcore_unpatch.upgrade.sources import download

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "history.bin"

GONE = OUTPUT.with_name("gone.json")  # what scan asks of it, without the rest


def main() -> None:
    """Fetch the releases, read them and write the file; the same bytes for the same releases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--add", nargs="+", default=[], metavar="RELEASE")
    releases = [*history.releases(), *parser.parse_args().add]
    packed = history.pack({release: read_release(download(release)) for release in releases})
    OUTPUT.write_bytes(packed)
    history.clear()
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(last)}" for name, last in gone.from_history().items())
    GONE.write_text(f"{{\n{lines}\n}}\n")
    print(f"{OUTPUT.name}: {len(packed)} bytes, {len(releases)} releases")


if __name__ == "__main__":
    main()
