"""What happened to one name between two releases."""

from __future__ import annotations

from dataclasses import dataclass

from mcore_unpatch.library.fact import quoted
from mcore_unpatch.library.model import Known, Model


@dataclass(frozen=True, slots=True)
class Change:
    """The fate of a name. kind: unchanged, body, signature, moved, gone, or unknown where the old release lacks it."""

    name: str
    kind: str
    before: Known | None = None
    after: Known | None = None
    moved_to: str | None = None

    @property
    def added(self) -> list[str]:
        """Parameters that are new."""
        return [name for name in _names(self.after) if name not in _names(self.before)]

    @property
    def removed(self) -> list[str]:
        """Parameters that are gone."""
        return [name for name in _names(self.before) if name not in _names(self.after)]

    @property
    def same_body(self) -> bool:
        """Whether the statements are the same, whatever the parameters."""
        return (
            self.before is not None
            and self.after is not None
            and self.before.fact.statements == self.after.fact.statements
        )

    @property
    def sentence(self) -> str:
        """What happened, in a few words."""
        match self.kind:
            case "signature":
                said = [f"new parameter {quoted(self.added)}"] if self.added else []
                said += [f"removed {quoted(self.removed)}"] if self.removed else []
                return f"signature changed: {', '.join(said) or 'different order or defaults'}"
            case "moved":
                return f"moved to `{self.moved_to}`"
            case "body":
                return "body changed"
        return self.kind


def change(name: str, old: Model, new: Model) -> Change:
    """Compare one name in two releases."""
    before, after = old.find(name), new.find(name)
    if before is None:
        return Change(name, "unknown", None, after)
    if after is None:
        moved = new.moved(before.name, before.fact)
        return Change(name, "moved" if moved else "gone", before, new.find(moved) if moved else None, moved)
    then, now = before.fact, after.fact
    if then.detail != now.detail and now.kind == then.kind == "function":
        return Change(name, "signature", before, after)
    same = (then.kind, then.detail, then.digest) == (now.kind, now.detail, now.digest)
    return Change(name, "unchanged" if same else "body", before, after)


def _names(known: Known | None) -> list[str]:
    if known is None or known.fact.kind != "function":
        return []
    return [name for name in known.fact.parameters.names if name not in ("self", "cls")]
