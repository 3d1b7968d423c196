"""The megatron-core release a file is written for: what the project nearest to it asks for in its own files."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mcore_unpatch import reading
from mcore_unpatch.megatron.facts import HOOK_SINCE
from mcore_unpatch.megatron.versions import NEWEST, Version, allowed, show, tagged

_MAX_BYTES = 1_000_000
_NAMED = re.compile(rb"megatron[-_. ](?:core|lm)", re.IGNORECASE)
_NAME = re.compile(r"megatron[-_.]core", re.IGNORECASE)
_REQUIREMENT = re.compile(
    r"""\bmegatron[-_.]core(?![-_.\w/])\s*+(?:\[[^\]]{0,500}+\])?\s*+\(?((?:\s*+[=<>!~]=?=?\s*+[\w.*+!]++\s*+,?)++)""",
    re.IGNORECASE,
)
_GIT = re.compile(r"""megatron[-_.](?:core|lm)\b[^\n"',]{0,200}?@([\w./-]*\d\.\d[\w./-]*)""", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Judged:
    """The releases that patches of a file are judged for, ascending, and why just these."""

    versions: tuple[Version, ...]
    why: str

    def __str__(self) -> str:
        return f"Judged for megatron-core {' and '.join(map(show, self.versions))}: {self.why}."

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {"releases": [show(version) for version in self.versions], "why": self.why}


@dataclass(frozen=True, slots=True)
class _Ask:
    """What one requirement asks for; no release where it names a git commit."""

    text: str
    versions: tuple[Version, ...]
    is_pin: bool = True
    file: str = ""


@dataclass(slots=True)
class Requirements:
    """The releases asked for below `top`; `target`, where the user named one, overrules them all."""

    top: Path
    target: Version | None = None
    _known: dict[str, Judged | None] = field(default_factory=dict)

    def of(self, path: str) -> Judged:
        """What a file (posix, relative to the top) is judged for."""
        if self.target is not None:
            return Judged((self.target,), "named by --target-mcore")
        return self.asked(path) or Judged((NEWEST,), "the newest known, no project file names a release")

    def asked(self, path: str) -> Judged | None:
        """What the project around a file asks for, if it names Megatron at all."""
        folder = posixpath.dirname(path)
        while (found := self._in(folder)) is None and folder:
            folder = posixpath.dirname(folder)
        return found

    def pinned(self, path: str) -> tuple[Version, ...]:
        """The oldest and the newest release that the project around a file asks for; none where it names none."""
        judged = self.asked(path)
        return judged.versions if judged else ()

    def before_the_hook(self, path: str) -> str:
        """Why a file may not have what needs the hook; nothing where the newest release it is for has the hook."""
        judged = self.of(path)
        newest = judged.versions[-1]
        if newest >= HOOK_SINCE:
            return ""
        return f"it needs megatron-core>={show(HOOK_SINCE)}, and the file is for {show(newest)} ({judged.why})"

    def versions(self, path: str) -> tuple[Version, ...]:
        """The releases alone."""
        return self.of(path).versions

    def target_for(self, paths: Iterable[str]) -> Version:
        """The one release to migrate these files for: of the newest that each of their projects takes, the oldest."""
        return min((self.versions(path)[-1] for path in paths), default=self.versions("")[-1])

    def _in(self, folder: str) -> Judged | None:
        if folder not in self._known:
            self._known[folder] = _judged(list(_asks(self.top, self.top / folder)))
        return self._known[folder]


def _judged(asks: list[_Ask]) -> Judged | None:
    """A pin says most, then a git commit (probably newer than any release), then the narrowest range."""
    if not asks:
        return None
    chosen = [ask for ask in asks if ask.is_pin] or [ask for ask in asks if not ask.versions]
    chosen = chosen or [min(asks, key=lambda ask: ask.versions[-1][1] - ask.versions[0][1])]
    versions = sorted({version for ask in chosen for version in ask.versions})
    texts = dict.fromkeys(f"{ask.file} asks for {ask.text}" for ask in chosen)
    return Judged(tuple(versions) or (NEWEST,), " and ".join(texts))


def _asks(top: Path, folder: Path) -> Iterator[_Ask]:
    files = [folder / name for name in ("pyproject.toml", "setup.py", "setup.cfg")]
    files += [*sorted(folder.glob("requirements*.txt")), *sorted(folder.glob("requirements/*.txt"))]
    for file in files:
        try:
            if file.stat().st_size > _MAX_BYTES or not _NAMED.search(data := reading.read_below(top, file)):
                continue
        except OSError:
            continue
        name = file.relative_to(top).as_posix()
        text = data.decode(errors="replace")
        for ask in _of_toml(text) if file.suffix == ".toml" else _of_lines(text):
            yield replace(ask, file=name)


def _of_lines(text: str) -> Iterator[_Ask]:
    for line in text.splitlines():
        yield from _of_text(re.split(r"(?:^|\s)#", line, maxsplit=1)[0])


def _of_text(text: str) -> Iterator[_Ask]:
    for match in _GIT.finditer(text):
        yield from _of_git(match[1], "tag")
    for match in _REQUIREMENT.finditer(text):
        yield from _of_specifiers(match[1])


def _of_toml(text: str) -> Iterator[_Ask]:
    import tomllib

    try:
        yield from _of_table(tomllib.loads(text))
    except (tomllib.TOMLDecodeError, RecursionError):
        return


def _of_table(value: Any) -> Iterator[_Ask]:
    """Every requirement of megatron-core, dependencies, extras, groups, uv's and Poetry's tables."""
    if isinstance(value, str) and re.match(r"(?:-e\s|git\+|megatron)", value, re.IGNORECASE):
        yield from _of_text(value)
    elif isinstance(value, list):
        for item in value:
            yield from _of_table(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _of_source(item) if _NAME.fullmatch(key) else _of_table(item)


def _of_source(value: Any) -> Iterator[_Ask]:
    """What follows `megatron-core =`: a version as Poetry writes it, where to take it from, or several of these."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, str):
            yield from _of_specifiers(_without_carets(one))
        elif isinstance(one, dict):
            for kind in ("tag", "branch", "rev"):
                if isinstance(one.get(kind), str):
                    yield from _of_git(one[kind], kind)
            if isinstance(one.get("version"), str):
                yield from _of_specifiers(_without_carets(one["version"]))


def _of_git(reference: str, kind: str) -> Iterator[_Ask]:
    version = tagged(reference)
    word = {"tag": "the tag", "branch": "the branch"}.get(kind, "the git commit")
    yield _Ask(f"{word} {reference}", (version,) if version else (), is_pin=version is not None)


def _of_specifiers(text: str) -> Iterator[_Ask]:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        specifiers = SpecifierSet(text.strip(" ,"))
    except InvalidSpecifier:
        return
    if specifiers and (versions := allowed(specifiers)):
        operators = {one.operator for one in specifiers}
        words = {">=": "at least", "<": "below"}
        only = next(iter(specifiers)) if len(specifiers) == 1 else None
        said = f"{words[only.operator]} {only.version}" if only and only.operator in words else "".join(text.split())
        bounded = operators & {"==", "~="} or (operators & {"<", "<="} and operators & {">", ">="})
        yield _Ask(said.strip(","), versions, is_pin=len(versions) == 1 and bool(bounded))


def _without_carets(text: str) -> str:
    """Poetry's `^0.18` and `~0.18` as specifiers; a bare version is that version."""
    found = []
    for part in filter(None, map(str.strip, text.split(","))):
        match = re.fullmatch(r"([\^~])(\d+)(?:\.(\d+))?([\w.]*)", part)
        if match is None:
            found.append(f"=={part}" if part[0].isdigit() else part)
        elif match[1] == "^" and match[2] != "0":
            found.append(f">={part[1:]},<{int(match[2]) + 1}")
        else:
            found.append(f">={part[1:]},<{match[2]}.{int(match[3] or 0) + 1}")
    return ",".join(found) if text != "*" else ""
