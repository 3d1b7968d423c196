"""Plain fields of a module that hold another value while one forward runs, and their own again after it."""

from copy import copy
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

    def configure(self, model: Any, **values: Any) -> None:
        """Give the model another configuration; its layers keep theirs, which they may read again in the backward."""
        config = copy(model.config)
        for name, value in values.items():
            setattr(config, name, value)
        self.set(model, "config", config)

    def leave_out_mtp(self, model: Any) -> None:
        """No multi-token prediction in this call: neither its layers nor a loss."""
        self.configure(model, mtp_num_layers=None)
        self.set(model, "mtp_process", False)

    def restore(self) -> None:
        """Put everything back, the last set first."""
        while self._before:
            setattr(*self._before.pop())
