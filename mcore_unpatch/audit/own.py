"""What the file of a loaded Megatron module defines, and whether a live value is that.

The truth is the code that Python compiles from the installed file (its cached bytecode, so nothing is parsed): every
function and class body in it, by qualified name. A name may be defined more than once (a branch, an `except
ImportError`); any of them counts. A decorated function is looked for inside what its decorators made of it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mcore_unpatch.audit.origin import OURS, ROOTS, code_of, origin_of, package_of, way_in


class OwnCode:
    """The code objects of one module's file."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.file = module.__file__ or ""
        code = module.__spec__.loader.get_code(module.__name__)  # type: ignore[union-attr]
        self.by_name: dict[str, list[CodeType]] = defaultdict(list)
        self.packages = {"builtins", *ROOTS}
        self.packages.update(map(package_of, code.co_names))  # the names of imports are among them
        for inner in _all_codes(code):
            self.by_name[inner.co_qualname].append(inner)
            self.packages.update(map(package_of, inner.co_names))

    @cached_property
    def text(self) -> str:
        """The source."""
        return Path(self.file).read_text(encoding="utf-8", errors="replace")

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    def holds(self, value: Any, name: str) -> bool:
        """Whether a value is what this file defines as `name`, decorators of the file included."""
        codes = self.by_name[name]
        if code_of(value) in codes:
            return True
        layers = way_in(value, lambda inner: code_of(inner) in codes)
        if layers is not None:
            return not any(map(self._is_foreign, layers)) and self._may_be_wrapped(name)
        if code_of(value) is not None:  # another function
            return self._is_assigned(name) and not self._is_foreign(value)
        if all(not code.co_flags & CO_OPTIMIZED for code in codes) and self._stands_on_a_mock(value, name):
            return True
        # What the decorator made does not show what it holds: a scripted function, a registered operator.
        return self._may_be_wrapped(name) and not self._is_foreign(value)

    def _stands_on_a_mock(self, value: Any, name: str) -> bool:
        """Without Transformer Engine its classes are mocks here, and a class that derives from one becomes one too."""
        held = (other for key, other in vars(self.module).items() if key != name and key not in self.by_name)
        return _is_mock(value) and any(map(_is_mock, held))

    def accepts(self, value: Any, name: str) -> bool:
        """Whether a value that this file does not define as `name` may be one that it imports, assigns or generates."""
        code = code_of(value)
        if code is not None and code.co_filename.startswith("<"):
            return True  # made by dataclass, namedtuple and their like
        return not self._is_foreign(value)

    def _is_foreign(self, value: Any) -> bool:
        origin = origin_of(value)
        if origin.package == OURS:
            return False
        return origin.package not in self.packages and not _is_of_python(origin.package)

    def _may_be_wrapped(self, name: str) -> bool:
        """Whether the file decorates `name`, or assigns it as well."""
        firsts = (self._lines[code.co_firstlineno - 1 : code.co_firstlineno] for code in self.by_name[name])
        return any(line[0].lstrip().startswith("@") for line in firsts if line) or self._is_assigned(name)

    def _is_assigned(self, name: str) -> bool:
        leaf = re.escape(name.rpartition(".")[2])
        return re.search(rf"^\s*{leaf}\s*(:[^=\n]+)?=[^=]", self.text, re.MULTILINE) is not None


def _is_mock(value: Any) -> bool:
    return type(value).__module__ == "unittest.mock"


def _is_of_python(package: str) -> bool:
    """The standard library, but for `unittest.mock`: a stand-in is Megatron's own only where its file imports that."""
    return package in sys.stdlib_module_names and package != "unittest"


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _all_codes(constant)


def is_code(value: Any) -> bool:
    """Whether a value is one that this comparison is about: a function, a class, or what holds one."""
    return isinstance(value, FunctionType | type | property | staticmethod | classmethod) or (
        callable(value) and not isinstance(value, ModuleType)
    )
