"""One release of Megatron Core, as conditions ask for it: its version, its names, the Python it needs."""

from __future__ import annotations

from typing import Final

from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known as megatron
from mcore_unpatch.megatron.layout import COMPILED
from mcore_unpatch.megatron.versions import OLDEST_PYTHON, RELEASES, ROOT, TRAINING, TRAINING_SINCE, parse_version

LATER: Final = "0.99.0"  # stands for any release that is newer than the known ones


class Release:
    """What a release has. `touched` tells whether an answer leaned on which release it is."""

    def __init__(self, label: str, model: Model | None = None) -> None:
        self.label, self._model = label, model  # the model where it is none of the known releases
        self.touched = False

    @property
    def is_later(self) -> bool:
        """Whether it stands for those to come."""
        return self.label == LATER

    @property
    def model(self) -> Model:
        """What this release defines; the newest that is known stands for those to come."""
        return self._model or megatron.model(RELEASES[-1] if self.is_later else self.label)

    def has(self, name: str) -> bool | None:
        """Whether this release has a name of Megatron's; None where that is the machine's matter."""
        self.touched = True
        if name.startswith(COMPILED):
            return None
        if f"{name}.".startswith(f"{TRAINING}.") and parse_version(self.label) < TRAINING_SINCE:
            return None  # where it was, it came with a checkout
        if self.is_later:  # what the newest has or has lost; of other names nothing is known
            return megatron.has(name, RELEASES[-1]) if megatron.ever(name) else None
        return megatron.holds(self.model, name) if self._model is not None else megatron.has(name, self.label)

    def has_not_yet(self, name: str) -> bool:
        """Whether this release is older than the first that has a name. One that has lost it breaks: another matter."""
        if not name.startswith(ROOT) or self.label not in RELEASES or self.has(name) is not False:
            return False
        since = megatron.first(name)
        return since is not None and RELEASES.index(self.label) < RELEASES.index(since)

    def version_fact(self, name: str) -> object:
        """A name of the module that holds the version; None for any other."""
        self.touched = True
        major, minor, patch = map(int, self.label.split(".")[:3])
        numbers = {"MAJOR": major, "MINOR": minor, "PATCH": patch, "VERSION": (major, minor, patch, "")}
        return self.label if name in {"__version__", "__shortversion__"} else numbers.get(name)

    def python(self) -> tuple[int, ...]:
        """The oldest Python that it runs on."""
        self.touched = True
        version = parse_version(self.label)
        return [python for since, python in OLDEST_PYTHON if since <= version][-1]

    def parameters(self, name: str) -> tuple[str, ...] | None:
        """The parameters of a function or a class of Megatron's."""
        self.touched = True
        return megatron.parameter_names(name, self.model)
