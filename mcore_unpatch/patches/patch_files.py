"""Patch files for the library's source: which of its modules they change."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mcore_unpatch.library.interface import Library
from mcore_unpatch.patches.records import PatchFile

ENDINGS = (".patch", ".diff")
_HEADER = re.compile(rb"^\+\+\+ (?:[a-z]/)?(\S+)", re.M)


def patch_files(texts: Mapping[str, bytes], library: Library) -> list[PatchFile]:
    """Those of some diffs that change the library."""
    found = []
    for path, text in sorted(texts.items()):
        headers = [
            (header.start(), _module(header[1].decode(errors="replace"), library)) for header in _HEADER.finditer(text)
        ]
        modules = [(at, module) for at, module in headers if module]
        if modules:
            line = text[: modules[0][0]].count(b"\n") + 1
            found.append(PatchFile(path, line, tuple(dict.fromkeys(module for _, module in modules))))
    return found


def _module(name: str, library: Library) -> str:
    """The dotted name below the folder that holds the library's packages."""
    folder, _, file = name.rpartition("/")
    stem = file.partition(".")[0]
    parts = folder.split("/") if stem == "__init__" else [*folder.split("/"), stem]
    dotted = (".".join(parts[start:]) for start in range(len(parts)))
    return next((one for one in dotted if library.within(one)), "")
