"""Fakes of Megatron's modules that tests put into `sys.modules`: what is then set on them changes no Megatron."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.files import Files
from mcore_unpatch.scanner.sources.parsing import Unreadable

_FAKE = re.compile(rb"(?:ModuleType|SimpleNamespace|Mock)\(")
_NAME = re.compile(rb"[\"'](megatron(?:\.\w+)*)[\"']")


def is_stubbed(project: Files, path: str, target: str) -> bool:
    """Whether a test, a helper it imports or a conftest.py above it puts a fake where `target` would come from."""
    if not is_test(path):
        return False
    names = (name for file in _files(project, path) for name in _names(project, file))
    return any(target == name or target.startswith(f"{name}.") for name in names)


def _files(project: Files, path: str) -> Iterator[str]:
    yield path
    folder = posixpath.dirname(path)
    while True:
        yield posixpath.join(folder, "conftest.py")
        if not folder:
            break
        folder = posixpath.dirname(folder)
    for name in prefilter.imported_modules(project.data(path)):
        module = name.lstrip(".")
        helper = project.locate(path, module, len(name) - len(module))
        if helper and is_test(helper):
            yield helper


def _names(project: Files, file: str) -> list[str]:
    try:
        data = project.data(file) if project.exists(file) else b""
    except (OSError, Unreadable):
        return []
    if b"sys.modules" not in data or not _FAKE.search(data):
        return []
    return [name.decode() for name in _NAME.findall(data)]
