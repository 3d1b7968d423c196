"""Write `mcore_unpatch/megatron/models.bin`: each release of megatron-core that comes with the tool, and its branches.

    python tools/build_models.py [NAME=CLONE@COMMIT ...]

The releases are those that `megatron/versions.py` names, fetched with pip; `main=../Megatron-LM@origin/main` adds what
main is, with its day and commit. After a new release: name it in `versions.py`, run this, and read what
`unpatch upgrade` says of your repositories.
"""

from __future__ import annotations

import sys
from functools import reduce
from pathlib import Path

from mcore_unpatch.building.build import build
from mcore_unpatch.building.sources import git_options
from mcore_unpatch.library.packed import BEST, Branch, Packed
from mcore_unpatch.megatron.parts import LIBRARY
from mcore_unpatch.megatron.versions import RELEASES
from mcore_unpatch.repository import git
from mcore_unpatch.stacks.at_hand import fetch
from mcore_unpatch.stacks.sources import source_at

OUTPUT = Path(__file__).parents[1] / "mcore_unpatch" / "megatron" / "models.bin"


def main() -> None:
    """Fetch the releases, read them and the branches, and write the file; the same bytes for the same sources."""
    models = []
    for release in RELEASES:
        models.append(build(LIBRARY, release, fetch(release).items()))
        print(f"{release}: {len(models[-1].lines)} names", flush=True)
    whole = reduce(Packed.plus, models)
    for name, _, place in (text.partition("=") for text in sys.argv[1:]):
        branch, made = read_branch(name, place)
        whole = whole.with_branch(branch, made)
        print(f"{' '.join(branch)}: {len(made.lines)} names, {len(whole.branches[branch])} bytes", flush=True)
    OUTPUT.write_bytes(whole.to_bytes(BEST))
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size} bytes")


def read_branch(name: str, place: str) -> tuple[Branch, Packed]:
    """A commit of a clone, with its day and what it is."""
    source = source_at(place)
    clone, _, commit = place.rpartition("@")
    day, digits = (
        git.run(Path(clone), *git_options(Path(clone)), "log", "-1", "--format=%cs %h", "--abbrev=8", commit)
        .decode()
        .split()
    )
    return Branch(name, source.label, day, digits), build(LIBRARY, source.label, source.files.items())


if __name__ == "__main__":
    main()
