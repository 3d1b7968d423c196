"""Names as a reader knows them, and lists of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MOST = 3  # names that are listed


def leaf(name: str) -> str:
    """The last part of a name."""
    return name.rpartition(".")[2]


def short(name: str) -> str:
    """`Class.method` or `module.function`; of a class or a module its own name."""
    *_, owner, last = ("", *name.split("."))
    is_owned = not last[:1].isupper() or owner[:1].isupper()
    return f"{owner}.{last}" if owner and is_owned else last


def quoted(names: Iterable[str]) -> str:
    """`a`, `b` and 3 more."""
    every = list(dict.fromkeys(names))
    shown = ", ".join(f"`{name}`" for name in every[:_MOST])
    return shown + (f" and {len(every) - _MOST} more" if len(every) > _MOST else "")


def releases(labels: Sequence[str]) -> str:
    """0.18.2, 0.19.2."""
    return ", ".join(dict.fromkeys(labels))


def counted(number: int | str, word: str) -> str:
    """1 value, 2 values."""
    return f"{number} {word}{'' if str(number) == '1' else 's'}"
