"""Compare the loaded modules of Megatron with their files: what is rebound, swapped, added, and stale."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from mcore_unpatch.audit.origin import CodeOrigin, is_megatron, origin_of, package_of, way_in
from mcore_unpatch.audit.own import OwnCode, is_code
from mcore_unpatch.audit.report import Deviation

# Python and its libraries put these on every class and module.
_GENERATED = ("__class_getitem__", "__subclasshook__", "__loader__", "__builtins__")


def loaded_modules() -> dict[str, ModuleType]:
    """The modules of Megatron in this process that come from a Python file, by name."""
    return {
        name: module
        for name, module in sorted(sys.modules.items())
        if is_megatron(name) and isinstance(module, ModuleType) and module.__spec__ is not None
        if (getattr(module, "__file__", None) or "").endswith(".py")
    }


def replaced_modules() -> list[Deviation]:
    """Modules under a name of Megatron's that do not lie where the installed Megatron lies."""
    root = sys.modules.get("megatron.core")
    folder = str(Path(root.__file__ or "").parents[1]) if root is not None and root.__file__ else None
    if folder is None:
        return []
    others = {
        name: module
        for name, module in sorted(sys.modules.items())
        if is_megatron(name) and not hasattr(module, "__path__") and not _lies_in(module, folder)
    }
    return [Deviation("module", name, _origin_of_module(module)) for name, module in others.items()]


def _lies_in(module: Any, folder: str) -> bool:
    return str(getattr(module, "__file__", None) or "").startswith(folder)


def _origin_of_module(module: Any) -> CodeOrigin:
    if not isinstance(module, ModuleType):
        return origin_of(module)
    return CodeOrigin(module.__name__, getattr(module, "__file__", None) or "")


def deviations(modules: Iterable[ModuleType], known: dict[str, OwnCode] | None = None) -> list[Deviation]:
    """What these modules hold that their files do not say, and who still holds the original."""
    known = {} if known is None else known
    seen: list[tuple[Deviation, Any]] = []
    for module in modules:
        seen += _of_module(module, known)
    rebound = {id(value) for deviation, value in seen if deviation.kind in ("function", "class")}
    disputed = {deviation.name for deviation, _ in seen}
    kept = []
    for one, value in seen:
        if one.kind in ("imported", "added") and one.name.rpartition(".")[0] in known:
            # A name imported after the patch was made is the patch again; one that stands elsewhere in Megatron came
            # from there by `import *`.
            if id(value) in rebound or _stands_elsewhere(one.name, value, disputed):
                continue
        kept.append(one)
    return kept + list(_stale(kept, known))


def _stands_elsewhere(name: str, value: Any, disputed: set[str]) -> bool:
    leaf = name.rpartition(".")[2]
    holders = (home for home, module in loaded_modules().items() if vars(module).get(leaf) is value)
    return any(f"{home}.{leaf}" not in disputed for home in holders)


def own_code(module: ModuleType, known: dict[str, OwnCode]) -> OwnCode:
    """The code of a module's file, read once."""
    if module.__name__ not in known:
        known[module.__name__] = OwnCode(module)
    return known[module.__name__]


def _of_module(module: ModuleType, known: dict[str, OwnCode]) -> Iterator[tuple[Deviation, Any]]:
    own, home = own_code(module, known), module.__name__
    for name, value in list(vars(module).items()):
        if name in _GENERATED or not is_code(value):
            continue
        if isinstance(value, type) and value.__module__ == home and value.__qualname__ == name:
            if _is_another_class(value, own):
                yield _deviation("class", f"{home}.{name}", value), value
            else:
                yield from _of_class(value, own)
        elif own.by_name.get(name):
            if not own.holds(value, name):
                yield _deviation("class" if isinstance(value, type) else "function", f"{home}.{name}", value), value
        elif not own.accepts(value, name) or _is_wrapped_here(value, name):
            yield _deviation("imported" if _is_named(own, name) else "added", f"{home}.{name}", value), value


def _is_named(own: OwnCode, name: str) -> bool:
    """Whether the file says the name at all."""
    return name in own.text


def _is_another_class(cls: type, own: OwnCode) -> bool:
    """Whether none of a class's methods stands in the file that defines a class of its name with methods."""
    prefix = f"{cls.__qualname__}."
    written = {name for name in own.by_name if name.startswith(prefix) and name.count(".") == prefix.count(".")}
    return bool(written) and not any(name.removeprefix(prefix) in vars(cls) for name in written)


def _of_class(cls: type, own: OwnCode) -> Iterator[tuple[Deviation, Any]]:
    for name, value in list(vars(cls).items()):
        if name in _GENERATED or not is_code(value):
            continue
        full, qualified = f"{cls.__module__}.{cls.__qualname__}.{name}", f"{cls.__qualname__}.{name}"
        if isinstance(value, type) and value.__module__ == cls.__module__ and value.__qualname__ == qualified:
            yield from _of_class(value, own)
        elif own.by_name.get(qualified):
            if not own.holds(value, qualified):
                yield _deviation("method", full, value), value
        elif not own.accepts(value, qualified):
            yield _deviation("added", full, value), value


def _is_wrapped_here(value: Any, name: str) -> bool:
    """Whether a function imported from another module of Megatron was wrapped in this one alone."""
    if isinstance(value, FunctionType | type):
        return False
    layers = way_in(value, lambda one: isinstance(one, FunctionType) and is_megatron(one.__module__ or ""))
    if layers is None or layers[-1].__name__ != name:
        return False
    home = sys.modules.get(layers[-1].__module__)
    return home is not None and getattr(home, name, None) is layers[-1]


def _deviation(kind: str, name: str, value: Any) -> Deviation:
    layers = way_in(value, lambda inner: origin_of(inner).of_megatron and not isinstance(inner, type)) or [value]
    # Inner functions of one installer are one patch.
    by_installer = {origin.name.partition(".<locals>")[0]: origin for origin in reversed([*map(origin_of, layers)])}
    order = [origin for origin in reversed(by_installer.values()) if not origin.of_megatron]
    return Deviation(kind, name, origin_of(value), order=tuple(reversed(order)) if len(order) > 1 else ())


def _stale(found: list[Deviation], known: dict[str, OwnCode]) -> Iterator[Deviation]:
    """Names that other modules took from a module before it was rebound there, and still hold by value."""
    for deviation in found:
        if deviation.kind not in ("function", "class"):
            continue
        home, _, name = deviation.name.rpartition(".")
        codes = known[home].by_name[name]
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
