"""Write `mcore_unpatch/megatron/history.bin`: what each release of megatron-core defines, with digests.

    python tools/build_megatron_history.py RELEASE=FOLDER [RELEASE=FOLDER ...]

Each FOLDER holds one unpacked release (`megatron/core/...`), given from the oldest to the newest.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from mcore_unpatch.megatron.definitions import read_release
from mcore_unpatch.megatron.history import pack

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "history.bin"


def main() -> None:
    """Read the releases named on the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="+", metavar="RELEASE=FOLDER")
    releases = [argument.split("=", 1) for argument in parser.parse_args().releases]
    packed = pack({release: read_release(Path(folder)) for release, folder in releases})
    OUTPUT.write_bytes(packed)
    print(f"{OUTPUT.name}: {len(packed)} bytes, {len(releases)} releases")


if __name__ == "__main__":
    main()
