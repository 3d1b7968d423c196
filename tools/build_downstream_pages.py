"""Write `docs/downstreams/*.md` from `codemods/downstreams.toml`.

python tools/build_downstream_pages.py
"""

from pathlib import Path

from mcore_unpatch.codemods.pages import pages

FOLDER = Path(__file__).parents[1] / "docs" / "downstreams"


def main() -> None:
    """Write every page."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, page in pages().items():
        (FOLDER / f"{name}.md").write_text(page.markdown(), encoding="utf-8")


if __name__ == "__main__":
    main()
