"""The dependencies in a pyproject.toml: PEP 621's arrays, which uv reads too, dependency groups, Poetry's tables."""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mcore_unpatch.migrate.dependencies.listing import Listing, plus_extra

_MAIN = (("project", "dependencies"), ("tool", "poetry", "dependencies"))
Key = tuple[str, ...]


def pyproject_lists(file: Path, text: str, data: dict[str, Any]) -> Iterator[Listing]:
    """Every array and every table of requirements that has a place of its own in the file."""
    project, poetry = _below(data, ("project",)), _below(data, ("tool", "poetry"))
    keys: list[Key] = [_MAIN[0]]
    keys += [("project", "optional-dependencies", name) for name in _below(project, ("optional-dependencies",))]
    keys += [("dependency-groups", name) for name in _below(data, ("dependency-groups",))]
    yield from (_Array(file, text, key) for key in keys if isinstance(_value(data, key), list))
    tables = [_MAIN[1], *(("tool", "poetry", "group", name, "dependencies") for name in _below(poetry, ("group",)))]
    yield from (_Table(file, text, key) for key in tables if _below(data, key))


class _InToml(Listing):
    """A list at some key; tomlkit changes it and keeps the rest of the text."""

    def __init__(self, file: Path, text: str, key: Key) -> None:
        self.key = key
        super().__init__(file, text, self.meaning(text)[0], key in _MAIN)

    def meaning(self, text: str) -> tuple[list[str], object]:
        """What stands at the key, and the file without it."""
        data: Any = tomllib.loads(text)
        listed = _value(data, self.key[:-1]).pop(self.key[-1])
        return self._read(listed), (data, [item for item in listed if not isinstance(item, str)])

    def _read(self, listed: Any) -> list[str]:
        raise NotImplementedError

    def _edited(self, edit: Callable[[Any], None]) -> str:
        """The text after an edit of what stands at the key; line endings stay those of the file."""
        import tomlkit

        crlf = self.text.count("\r\n") == self.text.count("\n") > 0
        document = tomlkit.parse(self.text.replace("\r\n", "\n") if crlf else self.text)
        edit(_value(document, self.key))
        text = tomlkit.dumps(document)
        if not self.text.endswith("\n"):
            text = text.removesuffix("\n")
        if text.count("#") != self.text.count("#"):  # a comment
            raise self.refusal("mcore-unpatch[compat]")
        return text.replace("\n", "\r\n") if crlf else text


class _Array(_InToml):
    def _read(self, listed: Any) -> list[str]:
        return [item for item in listed if isinstance(item, str)]

    def with_requirement(self, requirement: str) -> str:
        """By the alphabet if the others stand so, below each other and without headings; else at the end."""
        import tomlkit

        def insert(array: Any) -> None:
            named = [(place, str(item).casefold()) for place, item in enumerate(array) if isinstance(item, str)]
            keys = [key for _, key in named]
            layout = array.as_string()
            below, headed = "\n" in layout, re.search(r"(?m)^\s*#", layout)
            ordered = len(keys) > 1 and keys == sorted(keys) and below and not headed
            literal = bool(named) and array[named[0][0]].as_string().startswith("'")
            item = tomlkit.string(requirement, literal=literal)
            index = bisect_left(keys, requirement.casefold()) if ordered else len(keys)
            array.insert(named[index][0] if index < len(named) else len(array), item)

        return self._edited(insert)

    def with_extra(self, index: int, extra: str) -> str:
        """The string with the extra, quoted as it was."""
        import tomlkit

        def replace(array: Any) -> None:
            place = [place for place, item in enumerate(array) if isinstance(item, str)][index]
            literal = array[place].as_string().startswith("'")
            array[place] = tomlkit.string(plus_extra(str(array[place]), extra), literal=literal)

        return self._edited(replace)


class _Table(_InToml):
    def _read(self, listed: Any) -> list[str]:
        return [_requirement(name, value) for name, value in listed.items()]

    def with_requirement(self, requirement: str) -> str:
        """The last entry of the table."""
        name, _, extras = requirement.removesuffix("]").partition("[")
        return self._edited(lambda table: table.append(name, _inline("*", extras.split(","))))

    def with_extra(self, index: int, extra: str) -> str:
        """The entry with the extra; a version alone becomes a table on its line."""

        def extend(table: Any) -> None:
            name = list(table)[index]
            value = table[name]
            if isinstance(value, str):
                new, said = _inline(str(value), [extra]), value.trivia.comment  # type: ignore[attr-defined]
                table[name] = new.comment(said) if said else new
            elif "extras" in value:
                value["extras"].append(extra)
            else:
                value["extras"] = [extra]

        return self._edited(extend)


def _inline(version: str, extras: list[str]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    table.update({"version": version, "extras": extras})
    return table


def _requirement(name: str, value: Any) -> str:
    """`name[extras]`, and the rest of what an entry of Poetry says."""
    rest = dict(value) if isinstance(value, dict) else {"version": value}
    extras = ",".join(rest.pop("extras", []))
    if rest == {"version": "*"}:
        rest = {}
    return f"{name}{f'[{extras}]' if extras else ''}{f' {json.dumps(rest)}' if rest else ''}"


def _value(data: Any, key: Key) -> Any:
    for part in key:
        data = data.get(part) if hasattr(data, "get") else None
    return data


def _below(data: Any, key: Key) -> dict[str, Any]:
    found = _value(data, key)
    return found if isinstance(found, dict) else {}
