"""What Dockerfiles, shell scripts and the commands of CI install: read line by line, variables put in, nothing run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcore_unpatch.stacks.revision import REPOSITORY, UPSTREAM, ReadFile, Revision, in_text, of_reference

_MEGATRON = re.compile(r"megatron|mcore|mlm_", re.IGNORECASE)
_NAMED = re.compile(r"megatron[-_.](?:core|lm)|\$\{?\w*(?:megatron|mcore)", re.IGNORECASE)
_UNSET = re.compile(r"megatron[-_.]core(?:\[[^\]]*\])?[=<>~]=(\$\{?\w+)", re.IGNORECASE)  # a release that nobody names
_REPOSITORY = re.compile(rf"^{REPOSITORY}/?$", re.IGNORECASE)
_ADDRESS = re.compile(r"://|^git@|github\.com")
_REFERENCE = re.compile(r"[\w$][\w./${}:@+-]*")
_FOLDER = re.compile(r"(?:^|/)megatron-lm[\w.-]*/?$", re.IGNORECASE)
_INSTALLS = re.compile(r"\b(?:pip[\d.]*|uv|conda|mamba|poetry|pipx)\b")
_ASSIGNED = re.compile(
    r"""^(?:export\s+|local\s+|readonly\s+|declare\s+(?:-\w+\s+)?)?([A-Za-z_]\w*)=("[^"]*"|'[^']*'|\S*)"""
)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?[-=]([^{}]*))?\}|([A-Za-z_]\w*))")
_WORTH = ("megatron", "mcore", "git", "cd ", "pushd", "popd")
_SETS = re.compile(r"\w=")
_COMMANDS = re.compile(r"&&|\|\||;|\||\$\(|\(|\)|then(?<=\bthen)\b|do(?<=\bdo)\b|else(?<=\belse)\b|RUN(?<=\bRUN)\b")
_TELLING = re.compile(r"clone|git\b|mcore|pip[\d.]*\b|pipx\b|uv\b|conda\b|mamba\b|poetry\b")  # else nothing is said
_INSTRUCTION = re.compile(r"^\s*(FROM|ARG|ENV|WORKDIR)\s+(.*)$", re.IGNORECASE | re.DOTALL)
_PAIR = re.compile(r"""["']?(repo|repository|url)["']?\s*[:=]\s*["']?([^"'\s,]+)""")
_REF = re.compile(r"""["']?(?:ref|rev|commit|tag|branch)["']?\s*[:=]\s*["']?([^"'\s,]+)""")
_OF_THE_SERVICE = re.compile(r"\$\{\{.*?\}\}")
_MOST_VALUES = 4  # that one variable, or one text, may have


@dataclass(slots=True)
class _Clone:
    """A clone of Megatron: what of it is checked out."""

    line: int
    repository: str
    references: list[str] = field(default_factory=list)
    fetched: str = ""
    implied: bool = False  # nobody clones it here: somebody goes into a folder of that name


def of_script(file: ReadFile, docker: bool = False) -> None:
    """The Megatrons that a script installs or clones; variables that nobody sets are noted."""
    lines, reader = [*_logical(file.text)], _Reader(file, docker)
    code = "\n".join(line for _, line in lines).lower()
    for number, line in lines if docker or _TELLING.search(code) else ():
        reader.take(number, line)
    reader.end()


def of_pairs(file: ReadFile) -> None:
    """A repository and its reference, as the checkout of a workflow or a manifest names them."""
    lines = file.text.splitlines()
    for number, line in enumerate(lines):
        pair = _PAIR.search(line)
        name = _REPOSITORY.match(pair[2]) if pair else None
        if name is None:
            continue
        around = [*lines[number : number + 4], *lines[max(0, number - 3) : number][::-1]]
        near = [match[1] for each in around if (match := _REF.search(each))]
        if near and "$" not in near[0]:
            file.found.append((number + 1, of_reference(near[0], f"{name[1]}/{name[2]}")))


def _logical(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, and the number of the first; comments are left out."""
    held, start = "", 0
    for number, line in enumerate(_OF_THE_SERVICE.sub("${VALUE_OF_THE_WORKFLOW}", text).splitlines(), 1):
        if line.lstrip().startswith("#"):
            held += "\n" if held else ""
            continue
        start = start or number
        if line.rstrip().endswith("\\"):
            held += f"{line.rstrip()[:-1]}\n"
            continue
        yield start, f"{held}{line}"
        held, start = "", 0
    if held:
        yield start, held


class _Reader:
    """The state of reading one script: variables, clones, and where it stands."""

    def __init__(self, file: ReadFile, docker: bool) -> None:
        self.file, self.docker = file, docker
        self.values: dict[str, list[str]] = {}
        self.clones: dict[str, _Clone] = {}
        self.inside: _Clone | None = None

    def take(self, number: int, line: str) -> None:
        """One line with its continuations."""
        lower = line.lower()
        if self.docker and (instruction := _INSTRUCTION.match(line)):
            self._instruct(instruction[1].upper(), instruction[2].strip())
            return
        if not any(word in lower for word in _WORTH) and not ("=" in line and _SETS.search(line)):
            return
        at = 0
        for command in _COMMANDS.split(line):
            start = line.index(command, at)
            at = start + len(command)
            indent = len(command) - len(command.lstrip())
            self._command(number + line.count("\n", 0, start + indent), command.strip())

    def end(self) -> None:
        """What was cloned, with what is checked out of it in the end."""
        for clone in self.clones.values():
            for reference in clone.references or ([] if clone.implied else [""]):
                revision = of_reference(reference, clone.repository)
                if revision.versions or not clone.implied or "$" in reference:  # else it may be of any fork
                    self._say(clone.line, revision)

    def _instruct(self, kind: str, text: str) -> None:
        """FROM, ARG, ENV and WORKDIR of a Dockerfile, whose stages share their variables here."""
        if kind == "FROM":
            self.file.images += self._expand(next(word for word in text.split() if not word.startswith("--")))[:1]
        elif kind == "WORKDIR":
            self.inside = self._clone_in(text)
        elif kind == "ARG":
            for word in text.split():
                name, given, value = word.partition("=")
                if given:
                    self.values[name] = self._expand(_bare(value))
        else:
            pairs = re.findall(r"""(\w+)=("[^"]*"|'[^']*'|\S*)""", text) or [tuple(text.split(None, 1))]
            self.values |= {pair[0]: self._expand(_bare(pair[1])) for pair in pairs if len(pair) == 2}

    def _command(self, number: int, command: str) -> None:
        if assigned := _ASSIGNED.match(command):
            values = self._expand(_bare(assigned[2]))
            known = self.values.setdefault(assigned[1], [])
            known += [value for value in values if value and value not in known]
            command = command[assigned.end() :].strip()
        if not command:
            return
        words = [_bare(word) for word in command.split()]
        if words[0] in {"cd", "pushd", "popd"}:
            self.inside = self._clone_in(words[1] if len(words) > 1 else "..")
        elif "clone" in command and _MEGATRON.search(" ".join(self._expand(command))):
            self._clone(number, words)
        elif "git" in words[:3] and {"checkout", "switch", "reset", "fetch"} & set(words):
            self._checkout(number, words)
        elif _INSTALLS.search(command):
            number += next((n for n, line in enumerate(command.split("\n")) if _NAMED.search(line)), 0)
            for text in self._expand(command):
                for _, revision in in_text(text):
                    self._say(number, revision)
                for release in _UNSET.findall(text):
                    self._say(number, Revision(release, ()))

    def _clone(self, number: int, words: list[str]) -> None:
        given, options = [], []
        after = ""
        for word in words:
            if after in {"-b", "--branch"}:
                options.append(word)
            elif word.startswith(("--branch=", "--revision=")):
                options.append(word.partition("=")[2])
            elif not word.startswith("-") or word == "-":
                given.append(word)
            after = word
        for at, word in enumerate(given):
            for address in self._expand(word):
                if (name := _REPOSITORY.match(address)) and _ADDRESS.search(address):
                    folder = given[at + 1] if len(given) > at + 1 and "clone" in given[:at] else name[2]
                    repository, of_git = f"{name[1]}/{name[2]}", "clone" in given[:at]
                    references = [word for text in options for word in self._expand(text) if word]
                    clone = _Clone(number, repository, references, implied=not of_git and not references)
                    self.clones[_leaf(folder)] = clone
                    return

    def _checkout(self, number: int, words: list[str]) -> None:
        clone = self.inside
        if "-C" in words[:-1]:
            clone = self._clone_in(words[words.index("-C") + 1])
        if clone is None:
            return
        verb = next(word for word in words if word in {"checkout", "switch", "reset", "fetch"})
        given = [word for word in words[words.index(verb) + 1 :] if not word.startswith("-")]
        if verb == "fetch":
            clone.fetched = given[-1] if len(given) > 1 else clone.fetched
            return
        if not given or given[0] in {".", "HEAD"} or (verb == "reset" and "--hard" not in words):
            return
        wanted = clone.fetched if given[-1] == "FETCH_HEAD" else given[-1]
        references = [word for word in self._expand(wanted) if _REFERENCE.fullmatch(word)]
        if references:
            clone.references, clone.line = references, number

    def _clone_in(self, folder: str) -> _Clone | None:
        expanded = next(iter(self._expand(folder)), folder)
        if clone := self.clones.get(_leaf(expanded)) or self.clones.get(_leaf(folder)):
            return clone
        if _FOLDER.search(expanded):
            return self.clones.setdefault(_leaf(expanded), _Clone(0, UPSTREAM, implied=True))
        return None

    def _expand(self, text: str) -> list[str]:
        """A text with the values of its variables put in: several where one has several; those unset stay."""
        texts = [text]
        for match in _VARIABLE.finditer(text):
            name, instead = match[1] or match[3], match[2]
            values = self.values.get(name) or ([_bare(instead)] if instead else None)
            if name in self.values and not values:
                values = [""]
            if values:
                texts = [text.replace(match[0], value) for text in texts for value in values][:_MOST_VALUES]
        return texts

    def _say(self, number: int, revision: Revision) -> None:
        if "$" in revision.name:
            name = re.sub(r"^.*?\$\{?(\w+).*", r"\1", revision.name)
            text = f"{name} has no value here, so which Megatron is installed is not known"
            self.file.notes.append((number, text))
        else:
            self.file.found.append((number, revision))


def _bare(word: str) -> str:
    return word.strip().strip("\"'")


def _leaf(folder: str) -> str:
    return folder.rstrip("/").rpartition("/")[2].lower()
