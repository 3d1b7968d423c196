"""Compare the loaded modules of Megatron with their files: what is rebound, swapped, added, and stale.

The truth is the code that Python compiles from the installed file (its cached bytecode, so nothing is parsed): every
function and class body in it, by qualified name. A name may be defined more than once (a branch, an `except
ImportError`); any of them counts. A decorated function is looked for inside what its decorators made of it.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dis import get_instructions
from functools import cache, cached_property
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from mcore_unpatch.audit.origin import OURS, CodeOrigin, code_of, maker_of, origin_of, package_of, way_in
from mcore_unpatch.audit.report import Deviation
from mcore_unpatch.megatron.versions import PACKAGES, within

# Python and its libraries put these on every class and module.
_GENERATED = ("__class_getitem__", "__subclasshook__", "__loader__", "__builtins__")


class OwnCode:
    """The code objects of one module's file."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.file = module.__file__ or ""
        code = module.__spec__.loader.get_code(module.__name__)  # type: ignore[union-attr]
        self.by_name: dict[str, list[CodeType]] = defaultdict(list)
        self.imported = {step.argval for step in get_instructions(code) if step.opname == "IMPORT_FROM"}
        self.packages = {"builtins", *PACKAGES}
        for inner in _all_codes(code):
            self.by_name[inner.co_qualname].append(inner)
            self.packages.update(map(package_of, inner.co_names))  # the names of imports are among them
        del self.by_name[code.co_qualname]  # the module itself

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
        if all(not code.co_flags & CO_OPTIMIZED for code in codes) and _is_mock(value):
            # Without Transformer Engine its classes are mocks here, and a class that derives from one becomes one too.
            held = (other for key, other in vars(self.module).items() if key != name and key not in self.by_name)
            if any(map(_is_mock, held)):
                return True
        if value is None:  # which no decorator gives
            return self._is_assigned(name)
        # What the decorator made does not show what it holds: a scripted function, a registered operator.
        return self._may_be_wrapped(name) and not self._is_foreign(value)

    def accepts(self, value: Any) -> bool:
        """Whether a value that this file does not define may be one that it imports, assigns or generates."""
        code = code_of(value)
        is_generated = code is not None and code.co_filename.startswith("<")  # by dataclass, namedtuple and their like
        return is_generated or not self._is_foreign(value)

    def _is_foreign(self, value: Any) -> bool:
        package = origin_of(value).package
        # A stand-in of `unittest.mock` is Megatron's own only where its file imports that.
        is_pythons = package in sys.stdlib_module_names and package != "unittest"
        return package != OURS and package not in self.packages and not is_pythons

    def _may_be_wrapped(self, name: str) -> bool:
        """Whether the file decorates `name`, or assigns it as well."""
        firsts = (
            line for code in self.by_name[name] for line in self._lines[code.co_firstlineno - 1 : code.co_firstlineno]
        )
        return any(line.lstrip().startswith("@") for line in firsts) or self._is_assigned(name)

    def _is_assigned(self, name: str) -> bool:
        """Whether the file also binds `name` in another way: the fallback of an import that fails is a definition."""
        leaf = re.escape(name.rpartition(".")[2])
        return (
            name in self.imported or re.search(rf"^\s*{leaf}\s*(:[^=\n]+)?=[^=]", self.text, re.MULTILINE) is not None
        )


@cache
def own_code(module: ModuleType) -> OwnCode:
    """The code of a module's file, read once in a process."""
    return OwnCode(module)


def _is_mock(value: Any) -> bool:
    return type(value).__module__ == "unittest.mock"


def _all_codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and all that it holds."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_codes(constant)


def is_code(value: Any) -> bool:
    """Whether a value is one that this comparison is about: a function, a class, or what holds one."""
    return isinstance(value, FunctionType | type | property | staticmethod | classmethod) or (
        callable(value) and not isinstance(value, ModuleType)
    )


def loaded_modules() -> dict[str, ModuleType]:
    """The modules of Megatron in this process that come from a Python file, by name."""
    return {
        name: module
        for name, module in sorted(sys.modules.items())
        if within(name) and isinstance(module, ModuleType) and module.__spec__ is not None
        if (getattr(module, "__file__", None) or "").endswith(".py")
    }


def replaced_modules() -> list[Deviation]:
    """Modules under a name of Megatron's that do not lie where the installed Megatron lies."""
    root = sys.modules.get("megatron.core")
    folder = str(Path(root.__file__).parents[1]) if root is not None and root.__file__ else None
    if folder is None:
        return []
    others = []
    for name, module in sorted(sys.modules.items()):
        file = str(getattr(module, "__file__", None) or "")
        if within(name) and not hasattr(module, "__path__") and not file.startswith(folder):
            by = CodeOrigin(module.__name__, file) if isinstance(module, ModuleType) else origin_of(module)
            others.append(Deviation("module", name, by))
    return others


def deviations(modules: Iterable[ModuleType]) -> list[Deviation]:
    """What these modules hold that their files do not say, and who still holds the original."""
    seen = [row for module in modules for row in _inside(module, own_code(module))]
    rebound = {id(value) for deviation, value in seen if deviation.kind in ("function", "class")}
    disputed = {deviation.name for deviation, _ in seen}
    kept = []
    for way, value in seen:
        home, _, leaf = way.name.rpartition(".")
        if way.kind in ("imported", "added") and home in sys.modules:
            # A name imported after the patch was made is the patch again; one that stands elsewhere in Megatron came
            # from there by `import *`.
            holders = (name for name, module in loaded_modules().items() if vars(module).get(leaf) is value)
            if id(value) in rebound or any(f"{name}.{leaf}" not in disputed for name in holders):
                continue
        kept.append(way)
    return kept + list(_stale(kept))


def _inside(holder: ModuleType | type, own: OwnCode) -> Iterator[tuple[Deviation, Any]]:
    """What a module, or a class in it, holds that its file does not say, each with its value."""
    home = own.module.__name__
    prefix = f"{holder.__qualname__}." if isinstance(holder, type) else ""
    for name, value in list(vars(holder).items()):
        qualified = f"{prefix}{name}"
        if name in _GENERATED or not (is_code(value) or qualified in own.by_name):
            continue
        kind = ""
        if isinstance(value, type) and value.__module__ == home and value.__qualname__ == qualified:
            if not prefix and _is_another_class(value, own):
                kind = "class"
            else:
                yield from _inside(value, own)
        elif own.by_name.get(qualified):
            if not own.holds(value, qualified):
                kind = "method" if prefix else "class" if isinstance(value, type) else "function"
        elif not own.accepts(value) or (not prefix and _is_wrapped_here(value, name)):
            kind = "added" if prefix or name not in own.text else "imported"
        if kind:
            yield _deviation(kind, f"{home}.{qualified}", value), value


def _is_another_class(cls: type, own: OwnCode) -> bool:
    """Whether none of a class's methods stands in the file that defines a class of its name with methods."""
    prefix = f"{cls.__qualname__}."
    written = {name.removeprefix(prefix) for name in own.by_name if name.startswith(prefix)}
    methods = {name for name in written if name.isidentifier()}  # not `<lambda>`, nor what methods hold
    private = f"_{cls.__name__.lstrip('_')}"  # which Python writes before names such as `__hidden`
    return bool(methods) and methods.isdisjoint(name.removeprefix(private) for name in vars(cls))


def _is_wrapped_here(value: Any, name: str) -> bool:
    """Whether a function imported from another module of Megatron was wrapped in this one alone."""
    if isinstance(value, FunctionType | type):
        return False
    layers = way_in(value, lambda layer: isinstance(layer, FunctionType) and within(layer.__module__ or ""))
    if layers is None or layers[-1].__name__ != name:
        return False
    return getattr(sys.modules.get(layers[-1].__module__), name, None) is layers[-1]


def _deviation(kind: str, name: str, value: Any) -> Deviation:
    layers = way_in(value, lambda inner: origin_of(inner).of_megatron and not isinstance(inner, type)) or [value]
    # Inner functions of one installer are one patch.
    by_installer = {origin.name.partition(".<locals>")[0]: origin for origin in reversed([*map(origin_of, layers)])}
    order = [origin for origin in reversed(by_installer.values()) if not origin.of_megatron and not origin.is_library]
    return Deviation(kind, name, maker_of(value), order=tuple(reversed(order)) if len(order) > 1 else ())


def _stale(deviations: list[Deviation]) -> Iterator[Deviation]:
    """Names that other modules took from a module before it was rebound there, and still hold by value."""
    for deviation in deviations:
        if deviation.kind not in ("function", "class"):
            continue
        home, _, name = deviation.name.rpartition(".")
        codes = own_code(sys.modules[home]).by_name[name]
        for other, module in sorted(sys.modules.items()):
            held = vars(module).get(name) if isinstance(module, ModuleType) else None
            if held is None or other == home or other == deviation.by.name.rpartition(".")[0]:
                continue
            is_original = (
                held.__module__ == home and held.__qualname__ == name
                if isinstance(held, type)
                else isinstance(held, FunctionType) and held.__code__ in codes
            )
            if is_original and package_of(other) != deviation.by.package:
                yield Deviation("stale", f"{other}.{name}", origin_of(held), of=deviation.name)
