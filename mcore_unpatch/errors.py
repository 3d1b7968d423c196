"""What goes wrong: before any file is looked at, which only the user can change, or with one file."""

from __future__ import annotations

from dataclasses import dataclass


class UsageError(Exception):
    """A message for the user; the command ends with exit code 2."""


@dataclass(frozen=True, slots=True, order=True)
class FileError:
    """A file that could not be analysed, and why."""

    path: str
    message: str

    @classmethod
    def of(cls, path: str, error: Exception) -> FileError:
        """One that was raised; what the system says is said to be of the reading."""
        return cls(path, f"cannot be read: {error.strerror or error}" if isinstance(error, OSError) else str(error))
