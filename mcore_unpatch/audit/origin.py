"""Where a live value comes from: the file and line of its code, and the package that holds it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from mcore_unpatch.megatron.versions import PACKAGES, within
from mcore_unpatch.records import record

OURS = "mcore_unpatch"
# What a decorator keeps of what it decorates: functools, descriptors, torch.compile, Triton.
_INNER = ("__wrapped__", "__func__", "func", "fget", "fn", "_fn", "_torchdynamo_orig_callable", "_init_fn")
_DEPTH = 6
_LIBRARIES = sys.stdlib_module_names - {"unittest"} | {"torch"}


@record
class CodeOrigin:
    """The code behind a value. `package` is what one imports: `verl`, `megatron.bridge`; empty for a script."""

    name: str
    file: str = ""
    line: int = 0
    package: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{self.name} ({where})" if where else self.name

    @property
    def of_megatron(self) -> bool:
        """Whether Megatron itself holds the code."""
        return self.package in PACKAGES

    @property
    def is_library(self) -> bool:
        """Whether Python or torch holds the code: their decorators serve whoever uses them."""
        return self.package in _LIBRARIES


def matches(name: str, target: str) -> bool:
    """Whether a dotted name is a target or lies in it."""
    return f".{name}.".startswith(f".{target}.") if within(target) else f".{target}." in f".{name}."


def package_of(module: str) -> str:
    """The package one imports for a module: its first name, or the first two below the namespace `megatron`."""
    first, _, rest = module.partition(".")
    if first == "megatron" and rest:
        return f"megatron.{rest.partition('.')[0]}"
    return "" if first == "__main__" else first


def origin_of(value: Any) -> CodeOrigin:
    """Where a value was defined: a function by its code, a class by its module, anything else by what it wraps."""
    code = code_of(value)
    if code is not None:
        module = _module_at(code.co_filename) or getattr(_function(value), "__module__", None) or ""
        return CodeOrigin(f"{module}.{code.co_qualname}", code.co_filename, code.co_firstlineno, package_of(module))
    if isinstance(value, type):
        return _of_class(value)
    for inner in inside(value):
        if code_of(inner) is not None or isinstance(inner, type):
            return origin_of(inner)
    return _of_class(type(value))


def maker_of(value: Any) -> CodeOrigin:
    """Who put a value in place: of what Python's or torch's decorators made, the code that they decorate.

    Where that is Megatron's own, nobody can be told from the value: the decorator is named as what it is.
    """
    outer = origin_of(value)
    if not outer.is_library:
        return outer
    layers = way_in(value, lambda layer: not origin_of(layer).is_library)
    inner = origin_of(layers[-1]) if layers else outer
    return CodeOrigin(f"a decorator of {outer.package}", package=outer.package) if inner.of_megatron else inner


def code_of(value: Any) -> CodeType | None:
    """The code of a function or method; descriptors of Python's own are looked through."""
    function = _function(value)
    return function.__code__ if isinstance(function, FunctionType) else None


def _function(value: Any) -> Any:
    if isinstance(value, property):
        value = value.fget
    return value.__func__ if isinstance(value, staticmethod | classmethod | MethodType) else value


def inside(value: Any) -> Iterator[Any]:
    """What a wrapper holds: what it says that it wraps, then the functions in its closure."""
    value = _function(value)
    for name in _INNER:
        held = value.func if isinstance(value, partial) and name == "func" else _attribute(value, name)
        if callable(held) and held is not value:
            yield held
    for cell in getattr(value, "__closure__", None) or ():
        try:
            held = cell.cell_contents
        except ValueError:
            continue
        if isinstance(held, FunctionType | MethodType | partial | staticmethod | classmethod):
            yield held


def _attribute(value: Any, name: str) -> Any:
    try:
        return vars(value).get(name)
    except TypeError:  # no __dict__: what C code makes (lru_cache) has its attributes on the type
        return getattr(value, name, None) if name == "__wrapped__" else None


def way_in(value: Any, wanted: Any, depth: int = _DEPTH) -> list[Any] | None:
    """The layers from a value to the first inner one that `wanted` accepts, both ends included; None without one."""
    if wanted(value):
        return [value]
    if depth:
        for inner in inside(value):
            if (rest := way_in(inner, wanted, depth - 1)) is not None:
                return [value, *rest]
    return None


def _of_class(cls: type) -> CodeOrigin:
    module = cls.__module__
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    line = getattr(cls, "__firstlineno__", 0) or _line_of_class(file, cls.__name__)
    return CodeOrigin(f"{module}.{cls.__qualname__}", file, line, package_of(module))


@cache
def _line_of_class(file: str, name: str) -> int:
    try:
        text = Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    head = re.search(rf"^\s*class {re.escape(name)}\b", text, re.MULTILINE)
    return text.count("\n", 0, head.end()) + 1 if head else 0


_by_file: dict[str, str] = {}


def _module_at(file: str) -> str:
    """The loaded module of a file: a function's own word, `__module__`, is copied by `functools.wraps`."""
    if file not in _by_file:
        modules = reversed(list(sys.modules.items()))  # of two names the first: `__main__` is also `__mp_main__`
        _by_file.update({str(getattr(module, "__file__", "")): name for name, module in modules})
    return _by_file.setdefault(file, "")
