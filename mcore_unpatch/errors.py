"""What goes wrong before any file is looked at: the user has to change the call, the configuration or the repository."""

from __future__ import annotations


class UsageError(Exception):
    """A message for the user; the command ends with exit code 2."""
