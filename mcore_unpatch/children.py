"""Python processes of ours are started where a repository lies, and take no module from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


def can_be_safe() -> bool:
    """Whether a new interpreter can be kept from looking for modules in the current folder."""
    return sys.flags.safe_path or not sys.flags.ignore_environment


@contextmanager
def safe_path() -> Iterator[None]:
    """A repository may hold a module named `multiprocessing`, which a new interpreter would import first of all."""
    before = os.environ.get("PYTHONSAFEPATH")
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONSAFEPATH"]
        else:
            os.environ["PYTHONSAFEPATH"] = before
