"""Which files of a repository say which Megatron it runs, and what each of them says."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from fnmatch import translate
from functools import cache
from pathlib import Path

from mcore_unpatch.repository import reading
from mcore_unpatch.stacks import python, shell, sources
from mcore_unpatch.stacks.revision import ReadFile, Said

_MOST_BYTES = 64_000_000
_WORDS = (b"package_info", b"major")
_SAYS = {b"megatron": re.compile(rb"megatron[-_.](?:core|lm|bridge)"), b"mcore": re.compile(rb"mcore[-_]?v?\d")}
_INSTALLS = (b"clone", b"checkout", b"install", b"ref:", b"pip ")
PROJECT_FILES = ("pyproject.toml", "setup.py", "setup.cfg")
_LOCAL = re.compile(r"^(?:-e\s+|--editable[ =])?(?:file:)?(\.{1,2}/[\w./-]+)", re.MULTILINE)  # `./our_adapter`
_OF_LOCAL = re.compile(_LOCAL.pattern.encode(), re.MULTILINE)
# What kind of file a name is; the first that fits. Hints are shown and not judged for.
_KINDS = {
    "hint": "README* *[Ii][Nn][Ss][Tt][Aa][Ll][Ll]*.md *[Ii][Nn][Ss][Tt][Aa][Ll][Ll]*.rst *[Dd]ockerfile*.md "
    "*[Dd]ockerfile*.rst docs/*.md docs/*.rst */docs/*.md */docs/*.rst",
    "dependency": "pyproject*.toml",
    "lock": "uv*.lock poetry*.lock pdm*.lock Pipfile.lock pylock*.toml",
    "requirements": "*requirements*.txt *constraints*.txt *requirements*.in */requirements/*.txt requirements/*.txt "
    "setup.py setup.cfg Pipfile",
    "conda": "*environment*.y*ml *conda*.y*ml",
    "submodule": ".gitmodules",
    "dockerfile": "*[Dd]ockerfile* Containerfile* Apptainerfile* *.def",
    "script": "*.sh *.bash Makefile justfile",
    "ci": ".github/*.y*ml .gitlab-ci*.y*ml .gitlab/*.y*ml .circleci/*.y*ml azure-pipelines*.y*ml .buildkite/*.y*ml",
    "manifest": "*manifest*.json",
    "vendored": "*megatron/core/package_info.py",
}
_COMMANDS = {"dockerfile", "script", "ci", "hint"}
HINT, EXTRA = "hint", "extra"
OF_PYTHON = {"dependency", EXTRA, "lock", "requirements", "conda"}
_PLATFORMS = {
    "npu": re.compile(r"npu|ascend|cann(?![a-z])", re.IGNORECASE),
    "rocm": re.compile(r"rocm|(?<![a-z])amd(?![a-z])|mi[23]\d\d", re.IGNORECASE),
    "cuda": re.compile(r"cuda|(?<![a-z])cu1\d\d|nvcr\.io", re.IGNORECASE),
}


@dataclass(slots=True)
class Found:
    """All that the files of a repository say, and what could not be read or told."""

    said: list[Said] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@cache
def _named(ends: tuple[str, ...]) -> re.Pattern[str]:
    """All patterns with one of these ends as one; those without a folder are for the last part of a path."""
    kinds = []
    for kind, patterns in _KINDS.items():
        asked = (pattern for pattern in patterns.split() if pattern.endswith(ends))
        whole = ((pattern if "/" in pattern else f"*/{pattern}", pattern) for pattern in asked)
        forms = "|".join(translate(pattern) for pair in whole for pattern in dict.fromkeys(pair))
        kinds += [f"(?P<{kind}>{forms})"] if forms else []
    return re.compile("|".join(kinds))


def _kind(path: str) -> str | None:
    """What kind of file a name is: of most files, which are Python, few patterns are asked."""
    match = _named(("*", ".py") if path.endswith(".py") else ("",)).match(path)
    return match and match.lastgroup


def read_all(top: Path, paths: Collection[str]) -> Found:
    """What some files (posix, relative to the top) say."""
    read = Found()
    modules = _text(top, ".gitmodules", "submodule", read) or ""
    kinds = {path: kind for path in paths if (kind := _kind(path))}
    vendored = tuple(path.removesuffix("core/package_info.py") for path in kinds if kinds[path] == "vendored")
    projects = {posixpath.dirname(path) for path in paths if posixpath.basename(path) in PROJECT_FILES}
    packages = projects | {posixpath.dirname(path) for path in paths if path.endswith(".py")}

    def scope_of(path: str, kind: str) -> str:
        """The folder that a file speaks for: the project it lies in, or its own folder where that holds code."""
        folder = posixpath.dirname(path)
        if kind == "vendored":  # its own project file is Megatron's: what is around that runs it
            folder = posixpath.dirname(path.removesuffix("megatron/core/package_info.py").rstrip("/"))
        if kind in OF_PYTHON and folder in packages:
            return folder
        while folder and folder not in projects:
            folder = posixpath.dirname(folder)
        return folder

    locals_of: list[tuple[str, str]] = []  # a folder that is installed, and the one it is installed for
    for path, kind in kinds.items():
        if kind != "vendored" and path.startswith(vendored):
            continue
        text = _text(top, path, kind, read)
        if text is None:
            continue
        if kind == "requirements":
            folder = posixpath.dirname(path)
            inside = (posixpath.normpath(posixpath.join(folder, match[1])) for match in _LOCAL.finditer(text))
            locals_of += [(each, scope_of(path, kind)) for each in inside]
        file = ReadFile(top, path, text, modules)
        try:
            _READERS[kind](file)
        except (ValueError, RecursionError) as error:
            read.notes.append(f"{path} cannot be read: {' '.join(str(error).split()) or 'nested too deeply'}.")
            continue
        platform, scope = _platform(path, *file.images), scope_of(path, kind)
        for source, lines in ((kind, file.found), (EXTRA, file.optional)):
            every = dict.fromkeys(lines)
            read.said += [Said(path, line, revision, source, platform, scope) for line, revision in every]
        read.notes += [f"{path}:{line}: {note}." for line, note in file.notes if kind != HINT]
    for folder, scope in dict.fromkeys(locals_of):
        asked = [said for said in read.said if said.scope == folder != scope and said.source in OF_PYTHON]
        read.said += [replace(said, scope=scope) for said in asked]
    return read


def _of_workflow(file: ReadFile) -> None:
    shell.of_script(file)
    shell.of_pairs(file)


_READERS: dict[str, Callable[[ReadFile], None]] = {
    "dependency": python.of_project,
    "lock": python.of_lock,
    "requirements": python.of_lines,
    "conda": python.of_lines,
    "submodule": sources.of_modules,
    "dockerfile": lambda file: shell.of_script(file, docker=True),
    "script": shell.of_script,
    "ci": _of_workflow,
    "manifest": shell.of_pairs,
    "vendored": sources.of_vendored,
    "hint": shell.of_script,
}


def _text(top: Path, path: str, kind: str, found: Found) -> str | None:
    """The text of a file that speaks of Megatron; a file that cannot be read is said."""
    try:
        with open(reading.descriptor(top, path), "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
            if os.fstat(file.fileno()).st_size > _MOST_BYTES:
                large = f"{path} is larger than {_MOST_BYTES // 1_000_000} MB and was not read for Megatron."
                found.notes.append(large)
                return None
            data = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        found.notes.append(f"{path} cannot be read: {error.strerror or error}.")
        return None
    lower = data.lower()
    says = any(word in lower for word in _WORDS) or any(w in lower and p.search(lower) for w, p in _SAYS.items())
    if says and kind in _COMMANDS:
        says = any(word in data for word in _INSTALLS) or _SAYS[b"mcore"].search(data) is not None
    says = says or (kind == "requirements" and _OF_LOCAL.search(data) is not None)
    return data.decode(errors="replace") if says or (kind == "submodule" and b"megatron" in lower) else None


def _platform(*texts: str) -> str:
    """The platform that a path or an image names, if it names just one."""
    named = [name for name, pattern in _PLATFORMS.items() if any(map(pattern.search, texts))]
    return named[0] if len(named) == 1 else ""
