"""What goes wrong before any file is looked at, and only the user can change."""

from __future__ import annotations


class UsageError(Exception):
    """A message for the user; the command ends with exit code 2."""
