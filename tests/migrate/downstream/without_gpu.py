"""A pytest plugin for a downstream's tests: stands in for packages that cannot be imported where there is no GPU.

Megatron Bridge imports Transformer Engine, which is for CUDA alone, and pynvml the driver. The tests replace what they
take from these themselves; only the import has to succeed. Megatron Core is the real one.
"""

import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from unittest.mock import MagicMock

_PACKAGES = ("megatron.bridge", "pynvml")


class _Stand(ModuleType):
    __path__ = ()  # a package: anything below can be imported as well

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (MagicMock,), {}) if name[:1].isupper() else MagicMock(name=name)
        setattr(self, name, made)
        return made


class _Finder(MetaPathFinder, Loader):
    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        wanted = any(name == package or name.startswith(f"{package}.") for package in _PACKAGES)
        return importlib.util.spec_from_loader(name, self, is_package=True) if wanted else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Stand(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        return None


sys.meta_path.insert(0, _Finder())
