"""One release of a library as it is packed, as `library.interface.Release` asks it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from mcore_unpatch.library.released import Packed

_NUMBERS = re.compile(r"\d+")
LATER = "later"


class OneRelease:
    """One release, as `library.interface.Release` asks it; the newest that is known stands for those to come."""

    def __init__(self, packed: Packed, label: str) -> None:
        self.is_later = label == LATER
        self.label = "0.99.0" if self.is_later else label
        self._packed, self._all = packed, packed.snapshot()
        self._number = len(packed.labels) - 1 if self.is_later else packed.labels.index(label)
        self._names = packed.snapshot(self._number)
        self._has: dict[str, bool | None] = {}

    def has(self, dotted: str) -> bool | None:
        """Whether this release has a name."""
        if dotted not in self._has:
            self._has[dotted] = self._asked(dotted)
        return self._has[dotted]

    def _asked(self, dotted: str) -> bool | None:
        heart = self._packed.heart
        package, since = heart.unknown_before
        if dotted.startswith(heart.unknown):
            return None
        if f"{dotted}.".startswith(f"{package}.") and self._numbers < since:
            return None if self.ever(dotted) else False  # what no later one has was not there before
        if self.is_later and not self._names.has(dotted):
            return False if self.ever(dotted) else None
        return self._names.has(dotted)

    @property
    def _numbers(self) -> tuple[int, ...]:
        return tuple(map(int, _NUMBERS.findall(self.label)))

    def ever(self, dotted: str) -> bool:
        """Whether any release has a name."""
        return self._all.has(dotted)

    def lacks_yet(self, dotted: str) -> bool:
        """Whether this release is older than the first that has a name; one that has lost it is another matter."""
        if self.is_later or self.has(dotted) is not False:
            return False
        return any(
            self._packed.snapshot(number).has(dotted) for number in range(self._number, len(self._packed.labels))
        )

    def may_fail(self, dotted: str) -> bool:
        """Whether an import of a name that is there may fail all the same."""
        while self._packed.within(dotted):
            entry = self._names.entry(dotted)
            if entry is not None and (entry.trait("optional") is not None or entry.trait("needs")):
                return True
            dotted = dotted.rpartition(".")[0]
        return False

    def may_lack(self, dotted: str) -> bool:
        """Whether an object may be without an attribute that its class sets under a condition."""
        found = self._names.find(dotted)
        return found is not None and found.entry.trait("maybe") is not None

    def parameters(self, dotted: str) -> Sequence[str] | None:
        """The names of the parameters of a function or constructor."""
        return self._names.parameters(dotted)

    def version_fact(self, module: str, name: str) -> object:
        """What a module says of the version."""
        if module not in self._packed.heart.versioned:
            return None
        major, minor, patch = self._numbers[:3]
        if name in ("__version__", "__shortversion__"):
            return self.label
        return {"MAJOR": major, "MINOR": minor, "PATCH": patch, "VERSION": (major, minor, patch, "")}.get(name)

    def is_distribution(self, name: str) -> bool:
        """Whether a name is the one under which the library is installed."""
        return re.sub(r"[-_.]+", "-", name).lower() == self._packed.heart.distribution
