"""What the project files of Python say: dependencies, sources of uv and Poetry, requirements, setup, lock files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from mcore_unpatch.megatron import commits
from mcore_unpatch.stacks.revision import (
    ASK,
    NAME,
    ReadFile,
    Revision,
    in_text,
    of_reference,
    of_release,
    of_specifiers,
)
from mcore_unpatch.stacks.sources import from_folder

_NAME = re.compile(NAME, re.IGNORECASE)
_LOCKED = re.compile(rf"""^\s*(?:name = |"|- name: |- )["']?{NAME}["']?(?:\s*[:=,]|\s*$|[" ])""", re.IGNORECASE)
_FIELD = re.compile(r"""^\s*["']?(version|source|reference|resolved_reference|commit_hash|ref)["']?\s*[=:]\s*(.*)$""")
_GIT_SOURCE = re.compile(r"""git = "([^"?#]*)(?:\?[^"#]*)?(?:#([0-9a-f]{7,40}))?\"""")
_PATH_SOURCE = re.compile(r"""(?:editable|directory|virtual|path) = "([^"]+)\"""")
_OWNER = re.compile(r"[/:]([\w.-]+/[\w.-]+?)(?:\.git)?/?$")
_COMMENT = re.compile(r"(?:^|\s)#.*")
_BLOCK = 40  # lines of one package in a lock file, at most


def of_lines(file: ReadFile) -> None:
    """Requirements files, setup.py, setup.cfg, conda files: one requirement to a line."""
    for number, line in enumerate(file.text.splitlines(), 1):
        file.found += [(number, revision) for _, revision in in_text(_COMMENT.sub("", line))]


def of_project(file: ReadFile) -> None:
    """A pyproject.toml: what it asks for always, in extras and groups, and from which folders; raises ValueError.

    A source of uv decides over all versions, an override of uv over the dependencies.
    """
    import tomllib

    data = tomllib.loads(file.text)
    tool, project = _table(data, "tool"), _table(data, "project")
    uv = _table(tool, "uv")
    named = [value for key, value in _table(uv, "sources").items() if _NAME.fullmatch(key)]
    sources = [source for value in named for source in (value if isinstance(value, list) else [value])]
    folders = (source.get("path") for source in sources if isinstance(source, dict))
    paths = [path for path in folders if isinstance(path, str)]
    always = list(_of_source(sources))
    extras: list[Revision] = []
    if not always and not paths:
        always = list(_of_table(uv.get("override-dependencies", [])))
    if not always and not paths:
        extras = list(_of_table([project.pop("optional-dependencies", None), data.pop("dependency-groups", None)]))
        uv.pop("dependency-metadata", None)
        always = list(_of_table(data))
    for lines, revisions in ((file.found, always), (file.optional, extras)):
        lines += [(_line_of(file.text, revision.name), revision) for revision in dict.fromkeys(revisions)]
    for path in paths:
        from_folder(file, _line_of(file.text, path), path)


def of_lock(file: ReadFile) -> None:
    """A lock file of uv, Poetry, PDM or Pipenv, line by line, however large it is."""
    lines = file.text.splitlines()
    for number, line in enumerate(lines):
        if "egatron" not in line or not _LOCKED.match(line) or "{ name" in line or "{name" in line:
            continue
        block = _block(lines, number)
        fields = {match[1]: match[2] for each in block if (match := _FIELD.match(each))}
        if "requires-dist" in " ".join(block[:3]) and "source" not in fields:
            continue  # what uv is told of a package, not what it chose
        if path := _PATH_SOURCE.search(fields.get("source", "")):
            from_folder(file, number + 1, path[1])
        elif revision := _of_locked(fields, "".join(block)):
            file.found.append((number + 1, revision))


def _block(lines: list[str], start: int) -> list[str]:
    """The lines of one package, up to the next."""
    block = []
    for line in lines[start + 1 : start + _BLOCK]:
        if line.startswith("[[") or (line.startswith("}") or line.strip() in {"},", "}"}):
            break
        block.append(line)
    return block


def _of_locked(fields: dict[str, str], block: str) -> Revision | None:
    git = _GIT_SOURCE.search(fields.get("source", ""))
    version = fields.get("version", "").strip(" \"',").lstrip("=")
    if git and git[2]:
        owner = _OWNER.search(git[1])
        return of_reference(git[2], owner[1] if owner else "")
    if commit := re.search(r"""(?:resolved_reference|"ref"|commit_hash)["']?\s*[:=]\s*["']([\w./-]+)""", block):
        return of_reference(commit[1])
    return of_release(version) if version else None


def _line_of(text: str, word: str) -> int:
    """The line of the requirement that says a word: of those that name Megatron the first, else 1."""
    word = word[:7] if commits.is_commit(word) else word  # it may be abbreviated
    lines = [line for line in enumerate(text.splitlines(), 1) if not line[1].lstrip().startswith("#")]
    naming = [(number, "".join(line.split())) for number, line in lines if _NAME.search(line)]
    return next((number for number, line in naming if word in line), naming[0][0] if naming else 1)


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    return value if isinstance(value := data.get(key), dict) else {}


def _of_table(value: Any) -> Iterator[Revision]:
    """Every requirement of megatron-core: dependencies, extras, groups, Poetry's tables."""
    if isinstance(value, str) and re.match(r"(?:-e\s|git\+|megatron)", value, re.IGNORECASE):
        yield from (revision for _, revision in in_text(value))
    elif isinstance(value, list):
        for item in value:
            yield from _of_table(item)
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from _of_source(item) if _NAME.fullmatch(key) else _of_table(item)


def _of_source(value: Any) -> Iterator[Revision]:
    """What follows `megatron-core =`: a version, where to take it from, or several of these."""
    for source in value if isinstance(value, list) else [value]:
        version = source.get("version") if isinstance(source, dict) else source
        if isinstance(version, str) and version.startswith(("^", "~")) and not version.startswith("~="):
            yield Revision(version, (), "as Poetry writes it, which is not read", certain=False, settle=ASK)
        elif isinstance(version, str) and (said := of_specifiers(f"{'==' * version[:1].isdigit()}{version}")):
            yield said
        if isinstance(source, dict) and isinstance(source.get("git"), str):
            owner = _OWNER.search(source["git"])
            reference = next((source[key] for key in ("rev", "tag", "branch") if isinstance(source.get(key), str)), "")
            yield of_reference(reference, owner[1] if owner else "")
