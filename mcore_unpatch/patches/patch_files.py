"""Patch files for the library's source: which of its modules they change."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mcore_unpatch.library.every import Library
from mcore_unpatch.patches.records import PatchFile

ENDINGS = (".patch", ".diff")
_ADDED = re.compile(rb"^\+(?!\+\+)([^#\n]*)", re.M)
_WORD = re.compile(r"[A-Za-z_]\w*")
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
            ends = [at for at, _ in headers[1:]] + [len(text)]
            added = [(module, _words(text[at:end])) for (at, module), end in zip(headers, ends, strict=True) if module]
            found.append(PatchFile(path, line, tuple(dict.fromkeys(module for _, module in modules)), tuple(added)))
    return found


def _words(diff: bytes) -> frozenset[str]:
    """The words of the lines that a diff adds, comments left out."""
    lines = (line.decode(errors="replace") for line in _ADDED.findall(diff))
    return frozenset(word for line in lines for word in _WORD.findall(line))


def _module(name: str, library: Library) -> str:
    """The dotted name below the folder that holds the library's packages."""
    folder, _, file = name.rpartition("/")
    stem = file.partition(".")[0]
    parts = folder.split("/") if stem == "__init__" else [*folder.split("/"), stem]
    dotted = (".".join(parts[start:]) for start in range(len(parts)))
    return next((one for one in dotted if library.within(one)), "")
