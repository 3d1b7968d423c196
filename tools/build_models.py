"""Write `mcore_unpatch/megatron/models.bin`: the model of each release of megatron-core that comes with the tool.

    python tools/build_models.py              # every release that `megatron/versions.py` names, fetched with pip

After a new release: name it in `versions.py`, run this, and read what `unpatch upgrade` says of your repositories.
"""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.library.build import build
from mcore_unpatch.library.packing import pack
from mcore_unpatch.megatron.versions import LIBRARY, RELEASES
from mcore_unpatch.stacks.at_hand import fetch

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "models.bin"


def main() -> None:
    """Fetch the releases, read them and write the file; the same bytes for the same releases."""
    models = []
    for release in RELEASES:
        models.append(build(LIBRARY, release, fetch(release).items()))
        print(f"{release}: {len(models[-1].facts)} names")
    OUTPUT.write_bytes(pack(models))
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
