"""Why a place is left as it is: one of eleven kinds, each with its sentence."""

from __future__ import annotations

from enum import StrEnum

from mcore_unpatch.records import record


class Refusal(StrEnum):
    """A kind of reason."""

    FORM = "form"
    OLDER = "older"
    BELOW = "below"
    CHANGED = "changed"
    RELIED_ON = "relied-on"
    ON_HOOK = "on-hook"
    OTHER_RELEASE = "other-release"
    OVERLAP = "overlap"
    UNKNOWN = "unknown"
    NOT_SELECTED = "not-selected"
    UNSOUND = "unsound"


_SENTENCES = {
    Refusal.FORM: "its form is not one that is rewritten",
    Refusal.OLDER: "a Megatron that runs here, or may, is older than the hook",
    Refusal.BELOW: "another patch is in the way: move that first",
    Refusal.CHANGED: "it is not the code of any release",
    Refusal.RELIED_ON: "other code relies on it as it is",
    Refusal.ON_HOOK: "it uses the hook already",
    Refusal.OTHER_RELEASE: "the code around it is for another release",
    Refusal.OVERLAP: "another edit changes the same lines",
    Refusal.UNKNOWN: "which Megatron runs here is not known: name it in a project file, or with --target-mcore",
    Refusal.NOT_SELECTED: "a part of it has an ignore comment, or is not selected",
    Refusal.UNSOUND: "an edit of the file would not hold",
}


@record
class Left:
    """Why a place is left, and what is in the way there; changes that come with it are not made."""

    kind: Refusal = Refusal.FORM
    at: str = ""  # a place, or a name

    def __str__(self) -> str:
        return f"{_SENTENCES[self.kind]} ({self.at})" if self.at else _SENTENCES[self.kind]
