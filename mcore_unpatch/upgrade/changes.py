"""What happened to one name between two releases."""

from __future__ import annotations

from dataclasses import dataclass

from mcore_unpatch.megatron.lookup import Found
from mcore_unpatch.upgrade.releases import Release


@dataclass(frozen=True, slots=True)
class Change:
    """The fate of a name. kind: unchanged, body, signature, moved, gone, or unknown where the old release lacks it."""

    name: str
    kind: str
    before: Found | None = None
    after: Found | None = None
    moved_to: str | None = None

    @property
    def added(self) -> list[str]:
        """Parameters that are new."""
        return [word for word in _words(self.after) if word.rstrip("=") not in _plain(self.before)]

    @property
    def removed(self) -> list[str]:
        """Parameters that are gone."""
        return [word for word in _words(self.before) if word.rstrip("=") not in _plain(self.after)]

    @property
    def sentence(self) -> str:
        """What happened, in a few words."""
        match self.kind:
            case "signature":
                said = [f"new parameter {_quoted(self.added)}"] if self.added else []
                said += [f"removed {_quoted(self.removed)}"] if self.removed else []
                return f"signature changed: {', '.join(said) or 'different order or defaults'}"
            case "moved":
                return f"moved to `{self.moved_to}`"
            case "body":
                return "body changed"
        return self.kind


def change(name: str, old: Release, new: Release) -> Change:
    """Compare one name in two releases."""
    before, after = old.find(name), new.find(name)
    if before is None:
        return Change(name, "unknown", None, after)
    if after is None:
        moved = new.moved(before.name, before.definition)
        return Change(name, "moved" if moved else "gone", before, new.find(moved) if moved else None, moved)
    if before.definition == after.definition:
        return Change(name, "unchanged", before, after)
    if before.definition.signature != after.definition.signature and after.definition.kind == "function":
        return Change(name, "signature", before, after)
    return Change(name, "body", before, after)


def _words(found: Found | None) -> list[str]:
    if found is None or found.definition.kind != "function":
        return []
    return [word for word in found.definition.signature.split() if word not in ("*", "/", "self", "cls")]


def _plain(found: Found | None) -> set[str]:
    return {word.rstrip("=") for word in _words(found)}


def _quoted(words: list[str]) -> str:
    return ", ".join(f"`{word.rstrip('=')}`" for word in words)
