"""Write `docs/downstreams/*.md`, the page of each codemod of this package.

python tools/build_downstream_pages.py
"""

from pathlib import Path

from mcore_unpatch.codemods.registry import own

FOLDER = Path(__file__).parents[1] / "docs" / "downstreams"


def main() -> None:
    """Write every page."""
    for codemod in own():
        (FOLDER / f"{codemod.name}.md").write_text(codemod.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
