"""A source of which few names are asked: only the modules that they stand in are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from mcore_unpatch.library.build import read_module
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import Library, Model, NameIndex


class ModuleByModule(Mapping[str, Fact]):
    """The facts of a source, module by module as they are asked for."""

    def __init__(self, library: Library, files: dict[str, bytes]) -> None:
        self._library = library
        self._waiting = {_module_of(path): (path, data) for path, data in files.items()}
        self.read: dict[str, Fact] = {}

    def __getitem__(self, name: str) -> Fact:
        module = name
        while module not in self._waiting and "." in module:
            module = module.rpartition(".")[0]
        self._load(module)
        return self.read[name]

    def __iter__(self) -> Iterator[str]:
        for module in self._waiting:
            self._load(module)
        return iter(list(self.read))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _load(self, module: str) -> None:
        path, data = self._waiting.get(module, ("", b""))
        if path and data is not None:
            self.read |= read_module(self._library, path, data).facts
            self._waiting[module] = ("", b"")

    @property
    def names(self) -> _NamesInText:
        """Its names, module by module as well."""
        return _NamesInText(self)

    def modules_with(self, leaf: str) -> list[str]:
        """The modules whose text may define that name."""
        word = re.escape(leaf.encode())
        defined = re.compile(rb"(?m)^\s*+(?:(?:async\s+def|def|class)\s+%b\b|%b\s*+[:=])" % (word, word))
        return [module for module, (path, data) in self._waiting.items() if not path or defined.search(data)]


class _NamesInText(NameIndex):
    """Names that are looked for in the text before a module is read."""

    def __init__(self, facts: ModuleByModule) -> None:
        self._facts = self._all = facts

    def ending(self, leaf: str) -> list[str]:
        found = []
        for module in self._facts.modules_with(leaf):
            owners = [name for name in self.within(module) if self._facts[name].kind == "class"]
            found += [f"{owner}.{leaf}" for owner in (module, *owners)]
        return found

    def within(self, owner: str) -> list[str]:
        self._facts.get(owner)
        return [name for name in self._facts.read if name.rpartition(".")[0] == owner]


def light_model(library: Library, label: str, files: dict[str, bytes]) -> Model:
    """A model for a few questions about names; it knows nothing of how the library uses them."""
    return Model(library, label, ModuleByModule(library, files), {})


def _module_of(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
