"""The megatron-core release a repository asks for, read from its own requirement files."""

from __future__ import annotations

from pathlib import Path

from mcore_unpatch.megatron.versions import Version, pinned

_FILES = ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
_MAX_BYTES = 1_000_000


def pinned_version(top: Path) -> tuple[Version, str] | None:
    """(release, file it was read from), or None where nothing pins megatron-core."""
    candidates = [top / name for name in _FILES]
    candidates += sorted(top.glob("requirements*.txt")) + sorted(top.glob("requirements/*.txt"))
    for file in candidates:
        try:
            if not file.is_file() or file.stat().st_size > _MAX_BYTES:
                continue
            version = pinned(file.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        if version is not None:
            return version, file.name
    return None
