"""Plain fields of a module that hold another value while one forward runs, and their own again after it."""

from typing import Any


class OneCallFields:
    """Fields set for the call under way. Only data: a method is never touched."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give `owner.name` another value until `restore`."""
        before = getattr(owner, name)
        if callable(before):
            raise TypeError(f"{type(owner).__name__}.{name} is a function, and functions are not replaced here")
        self._before.append((owner, name, before))
        setattr(owner, name, value)

    def restore(self) -> None:
        """Put everything back, the last set first."""
        while self._before:
            setattr(*self._before.pop())
