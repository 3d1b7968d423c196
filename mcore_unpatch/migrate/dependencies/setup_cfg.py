"""`install_requires` and `extras_require` of a setup.cfg, as lists of lines."""

from __future__ import annotations

import configparser
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mcore_unpatch.migrate.dependencies.listing import Listing, Span
from mcore_unpatch.migrate.dependencies.requirements import with_line

_SECTION = re.compile(r"\[([^\]]+)\]")
_OPTION = re.compile(r"([^\s=:#;][^=:]*?)[ \t]*[=:][ \t]*([^\r\n]*)")


@dataclass
class _Option:
    section: str
    name: str
    start: int  # of the lines below its own
    end: int = 0
    items: list[Span] = field(default_factory=list)


class SetupCfgList(Listing):
    """One option whose value is a list of requirements."""

    def __init__(self, file: Path, text: str, option: _Option) -> None:
        self.option = option
        found = [text[start:end] for start, end in option.items]
        super().__init__(file, text, found, option.items, option.section == "options")

    def meaning(self, text: str) -> tuple[list[str], object]:
        """The lines of the value, and the file without it."""
        parser = configparser.RawConfigParser()
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(text)
        data = {section: dict(parser.items(section)) for section in parser.sections()}
        value = data[self.option.section].pop(self.option.name)
        return [line.strip() for line in value.splitlines() if line.strip()], data

    def _with_requirement(self, requirement: str) -> str:
        start, end = self.option.start, self.option.end
        newline = "\r\n" if "\r\n" in self.text else "\n"
        lead = "" if self.text[:start].endswith("\n") else newline
        block = with_line(self.text[start:end], requirement, "    ", newline)
        return self.text[:start] + lead + block + self.text[end:]


def setup_cfg_lists(file: Path, text: str) -> Iterator[SetupCfgList]:
    """Those of a file, unless the value is a file's name or stands on one line with semicolons."""
    for option in _options(text):
        values = [text[start:end] for start, end in option.items]
        on_one_line = option.items and option.items[0][0] < option.start
        if not (values and values[0].startswith("file:")) and not (on_one_line and ";" in values[0]):
            yield SetupCfgList(file, text, option)


def declared_files(file: Path, text: str) -> list[Path]:
    """The requirements files that `install_requires = file: ...` names."""
    main = [option for option in _options(text) if option.section == "options"]
    values = [text[start:end] for option in main for start, end in option.items[:1]]
    named = [value.removeprefix("file:").split(",") for value in values if value.startswith("file:")]
    return [file.parent / name.strip() for names in named for name in names]


def _options(text: str) -> list[_Option]:
    section, found = "", []
    current: _Option | None = None
    for match in re.finditer(r"[^\n]*\n|[^\n]+", text):
        line = match[0]
        if not line.strip() or line.lstrip()[0] in "#;":
            continue
        if line[0] in " \t":
            if current is not None:
                lead = len(line) - len(line.lstrip())
                current.items.append((match.start() + lead, match.start() + len(line.rstrip())))
                current.end = match.end()
            continue
        current = None
        if header := _SECTION.match(line):
            section = header[1]
        elif option := _OPTION.match(line):
            is_main = section == "options" and option[1] == "install_requires"
            if is_main or section == "options.extras_require":
                current = _Option(section, option[1], match.end(), match.end())
                if value := option[2].rstrip():
                    start = match.start() + option.start(2)
                    current.items.append((start, start + len(value)))
                found.append(current)
    return found
