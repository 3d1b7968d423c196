"""One Megatron by whatever name (a release, a range, a tag, a branch, a commit), where files say it, and its stack."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcore_unpatch.megatron import commits
from mcore_unpatch.megatron.commits import Commit
from mcore_unpatch.megatron.versions import NEWEST, RELEASES, Version, allowed, minor, parse_version, releases_of, show
from mcore_unpatch.records import dataclass, field, record

UPSTREAM = "NVIDIA/Megatron-LM"
DEFAULT_BRANCH = "HEAD"
CARRIER = r"megatron[-_.]bridge"  # a package that brings the Megatron it was written for
_TWO_NUMBERS = re.compile(r"^(v?\d+\.\d+)(?!\.?\d)")
_TAG = re.compile(r"core_([vr])(\d+\.\d+\.\d+)(.*)")
_REFERENCE = re.compile(r"^(?:refs/)?(?:heads/|tags/|remotes/)?(?:origin/|upstream/)?")
# The oldest known release speaks for what was before it; words of another would be said of what nobody read.
OLDEST = parse_version(RELEASES[0])
_OLDER = f"older than {RELEASES[0]}"
ASK = "pass its source with --target-mcore: CLONE@COMMIT, a checkout, a wheel, or `installed`"


@record
class Revision:
    """What is known of one Megatron: the releases to judge for (oldest and newest), none where nothing is known."""

    name: str
    versions: tuple[Version, ...] = ()
    words: str = ""  # what the name stands for, where it does not say that itself
    certain: bool = True
    is_older: bool = False  # than every known release: the oldest speaks for it
    is_range: bool = False  # any of the releases may be installed; else what is said must hold for all of them
    settle: str = ""  # how to know more, where the releases around it are all that is known
    given: str = ""  # what the user named it by, where that is a source

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases to judge for, as text."""
        return tuple(map(show, self.versions))

    @property
    def is_one_release(self) -> bool:
        """Whether one release is what it is: itself, or that of its release branch; not those around a commit."""
        return bool(self.versions) and not (self.settle or self.is_older or self.is_range)

    def __str__(self) -> str:
        return f"{self.name} ({self.words})" if self.words else self.name


def carried(name: str, carrier: str, settle: str) -> Revision:
    """The Megatron that another package brings, which only that package's own files name."""
    return Revision(name, (), f"Megatron through {carrier}", certain=False, settle=settle)


def of_specifiers(text: str) -> Revision | None:
    """A requirement: `==0.18.0`, `>=0.15,<0.17`; None for one that says nothing or cannot be read."""
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    plain = "".join(text.split()).strip(",")
    try:
        specifiers = SpecifierSet(plain)
    except InvalidSpecifier:
        return None
    versions = allowed(specifiers) if specifiers else ()
    exact = next((specifier.version for specifier in specifiers if specifier.operator in {"==", "==="}), None)
    if exact is not None and len(specifiers) == 1 and not exact.endswith(".*"):
        return of_release(_TWO_NUMBERS.sub(r"\1.0", exact))  # `0.18` and `0.18rc1` as pip reads them
    if specifiers and (versions[-1] < OLDEST if versions else "0" in specifiers):
        return _older(plain)
    if not versions:
        return Revision(plain, (), "no known release fits", certain=False, settle=ASK) if specifiers else None
    operators = {specifier.operator for specifier in specifiers}
    bounded = operators & {"==", "~="} or (operators & {"<", "<="} and operators & {">", ">="})
    pinned = bool(bounded) and len({minor(version) for version in versions}) == 1
    return Revision(plain, versions, certain=pinned and len(versions) == 1, is_range=not pinned)


def of_release(text: str) -> Revision | None:
    """`0.18.0`, `0.18`, `v0.18.0rc1`: one release, the newest of a minor version, or the nearest known."""
    name, _, local = text.strip().removeprefix("v").partition("+")
    try:
        version = parse_version(name)
    except ValueError:
        return None
    if "megatron" in local:  # a vendor's own version, `0.1.0+megatron0.15.0rc7`
        return Revision(text.strip(), (), "a version of a vendor", certain=False, settle=ASK)
    if commits.is_commit(local):  # `0.19.0+71e418ea7`, as a build from git names itself
        revision = of_reference(local)
        if revision.versions or (near := of_release(name)) is None:
            return revision
        return replace(near, name=text.strip(), words=revision.words, certain=False, settle=ASK)
    fitting = releases_of(version)
    if name in RELEASES:
        return Revision(name, (version,))
    if fitting and len(version) == 2:
        return Revision(name, (parse_version(fitting[-1]),), f"the newest is {fitting[-1]}")
    if version < OLDEST:
        return _older(name)
    if version[:2] > NEWEST:
        return Revision(name, (version,), f"newer than {RELEASES[-1]}, the newest known", certain=False, settle=ASK)
    if fitting and "dev" not in name:
        return Revision(name, (version,), f"before {show(version)}", certain=False)
    before = [known for known in RELEASES if parse_version(known) < version][-1:]
    after = [known for known in RELEASES if parse_version(known) >= version][:1]
    around = tuple(map(parse_version, (*before, *after)))
    return Revision(name, around, _between(*before, *after), certain=False, settle=ASK)


def _older(name: str, words: str = f"{_OLDER}, the oldest known") -> Revision:
    return Revision(name, (OLDEST,), words, certain=False, is_older=True)


def of_reference(reference: str, repository: str = UPSTREAM) -> Revision:
    """A tag, a branch or a commit of Megatron-LM or of a fork of it; one without releases where nothing is known."""
    name = _REFERENCE.sub("", reference.strip()) or DEFAULT_BRANCH
    upstream = repository.lower() in {UPSTREAM.lower(), ""}
    shown = name if upstream else f"{repository}@{name[:8] if commits.is_commit(name) else name}"
    tag = _TAG.search(name)
    if tag and tag[1] == "v" and tag[2] in RELEASES and not tag[3] and upstream:
        return Revision(tag[2], (parse_version(tag[2]),))
    if upstream and (commit := commits.table().named("main" if name == DEFAULT_BRANCH else name)):
        main = {DEFAULT_BRANCH: "main"}.get(name, name)
        return _of_commit(main, commit, moves=not (tag and tag[1] == "v"))
    if commits.is_commit(name):
        found = commits.table().find(name)
        if len(found) == 1:  # a fork has the commits of upstream too
            return _of_commit(found[0].digits if upstream else shown, found[0])
        said = "several commits begin so" if found else f"not among the commits up to {commits.table().until}"
        return Revision(name[:8] if upstream else shown, (), said, certain=False, settle=ASK)
    if tag and (release := of_release(tag[2])) is not None:  # a branch that this table is too old for, or a fork's
        newest = releases_of(release.versions[-1][:2])[-1:] if tag[1] == "r" else ()
        versions = tuple(map(parse_version, newest)) or release.versions
        by_name = f"by its name {' to '.join(map(show, versions))}"
        return Revision(shown, versions, by_name, certain=False, settle=ASK)
    said = "not a branch or tag that is known" if upstream else "a fork"
    return Revision(shown, (), said, certain=False, settle=ASK)


def _of_commit(name: str, commit: Commit, moves: bool = False) -> Revision:
    when = f"on {commit.day}" if moves else f"{commit.branch} of {commit.day}"
    around = tuple(dict.fromkeys(release for release in (commit.before, commit.after) if release))
    said = parse_version(commit.version) if commit.version else parse_version(around[0])
    if commit.before == commit.after:
        return Revision(commit.before, (parse_version(commit.before),))
    if not set(around) & set(RELEASES):
        return _older(name, f"{when}, {_OLDER}")
    if commit.after:
        versions = tuple(parse_version(release) for release in around if release in RELEASES)
        return Revision(name, versions, f"{when}, {_between(*around)}", certain=False, settle=ASK)
    last = parse_version(commit.before)
    if commit.branch.startswith("core_r"):  # no release has followed on this branch
        return Revision(name, (last,), f"{when}, after {commit.before}", certain=False)
    # The newest release speaks for what is to come, and what it says must hold for a later one as well.
    oldest = (last,) if last[:2] < NEWEST else ()
    versions = tuple(dict.fromkeys((*oldest, parse_version(RELEASES[-1]), *((said,) if said[:2] > NEWEST else ()))))
    return Revision(name, versions, f"{when}, newer than {commit.before}", certain=False, settle=ASK)


def _between(*around: str) -> str:
    return f"between {around[0]} and {around[1]}" if len(around) == 2 else f"near {''.join(around)}"


NAME = r"megatron[-_.]core"
_REQUIREMENT = re.compile(
    rf"""(?<![-\w./]){NAME}(?![-_.\w/])\s*+(?:\[[^\]]{{0,500}}+\])?\s*+\(?((?:\s*+[=<>!~]=?=?\s*+[\w.*+!]++\s*+,?)++)""",
    re.IGNORECASE,
)
# The name of a repository that is Megatron-LM or a fork of it, as far as its name tells.
REPOSITORY = r"(?:(?:https?|ssh|git)://[^\s\"'@]{0,200}?[/:]|git@[\w.-]+:|(?<![\w/.-]))?([\w.-]+)/((?:\w+-)?megatron-lm[\w-]*)(?:\.git)?"
_GIT = re.compile(rf"(?:git\+|@\s*git\+){REPOSITORY}/?(?:@([^\s\"'#;,&)]+))?", re.IGNORECASE)
_DIRECT = re.compile(
    rf"{NAME}(?:\[[^\]]{{0,500}}+\])?\s*+@\s*git\+\S{{0,200}}?[/:]([\w.-]{{1,100}}/[\w-]{{1,100}}?)(?:\.git)?"
    r"@([^\s\"'#;,&)]+)",
    re.IGNORECASE,
)
_WHEEL = re.compile(r"megatron_core-(\d[\w.+]*?)-[\w.]+-[\w.]+-[\w.]+\.whl", re.IGNORECASE)


@record
class Said:
    """One place where a file says which Megatron it is for."""

    path: str
    line: int
    revision: Revision
    source: str  # what kind of file says so
    platform: str = ""
    scope: str = ""  # the folder that it speaks for

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.path}:{self.line}"


@dataclass(slots=True)
class ReadFile:
    """One file, and what its reader finds in it, line by line."""

    top: Path
    path: str
    text: str
    modules: str  # the `.gitmodules` of the repository
    found: list[tuple[int, Revision]] = field(default_factory=list)
    optional: list[tuple[int, Revision]] = field(default_factory=list)  # in extras and groups
    notes: list[tuple[int, str]] = field(default_factory=list)  # what cannot be told
    images: list[str] = field(default_factory=list)  # what the stages of a Dockerfile start from


def in_text(text: str) -> Iterator[tuple[int, Revision]]:
    """Every Megatron that a text asks pip for, and where in it: by version, by git, or by the file of a wheel."""
    direct = {match.start(2): match for match in _DIRECT.finditer(text)}
    for match in direct.values():
        yield match.start(), of_reference(match[2], match[1])
    for match in _GIT.finditer(text):
        if match.start(3) not in direct:
            yield match.start(), of_reference(match[3] or "", f"{match[1]}/{match[2]}")
    for match in _REQUIREMENT.finditer(text):
        if (revision := of_specifiers(match[1])) is not None:
            yield match.start(), revision
    for match in _WHEEL.finditer(text):
        if (revision := of_release(match[1])) is not None:
            yield match.start(), revision


_SHOWN = 4  # stacks in one line


@record
class Stack:
    """One Megatron that a repository runs, and every place where that is said."""

    revision: Revision
    said: tuple[Said, ...] = ()
    why: str = ""  # where no file says it

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.revision.name

    @property
    def versions(self) -> tuple[Version, ...]:
        """The releases to judge for."""
        return self.revision.versions

    @property
    def needed(self) -> tuple[Version, ...]:
        """The releases on which an edit must work: of a range the newest, which is the one that pip installs."""
        return self.versions[-1:] if self.revision.is_range else self.versions

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that the places name."""
        return tuple(sorted({said.platform for said in self.said if said.platform}))

    @property
    def certainty(self) -> str:
        """How sure it is that this is what runs."""
        if not self.versions:
            return "not known"
        return "certain" if self.revision.certain else "likely"

    @property
    def place(self) -> str:
        """Where it is said first, and how often else."""
        more = f" and {len(self.said) - 1} more" if len(self.said) > 1 else ""
        return f"{self.said[0].place}{more}" if self.said else self.why

    def __str__(self) -> str:
        return f"{self.name} ({self.place})"

    def goes_by(self, name: str) -> bool:
        """Whether a user means this one: by its name, its release, its platform, or a file that names it."""
        commit = len(name) >= 7 and (self.name.startswith(name) or name.startswith(self.name))
        release = any(f"{show(version)}.".startswith(f"{name}.") for version in self.versions)
        return name in {self.name, *self.platforms, *(said.path for said in self.said)} or commit or release

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "name": self.name,
            "is": self.revision.words,
            "releases": list(self.revision.releases),
            "certainty": self.certainty,
            "platforms": list(self.platforms),
            "settle": self.revision.settle,
            "why": self.why,
            "said": [
                {"path": one.path, "line": one.line, "kind": one.source, "platform": one.platform} for one in self.said
            ],
        }


@record
class Judged:
    """The stacks that patches of a file are judged for, or of several `files`."""

    stacks: tuple[Stack, ...]
    files: tuple[str, ...] = field(default=(), compare=False)

    @property
    def versions(self) -> tuple[Version, ...]:
        """The releases, ascending; the newest where no stack is known."""
        return tuple(sorted({version for stack in self.stacks for version in stack.versions})) or (NEWEST,)

    @property
    def why(self) -> str:
        """Where the stacks are said, and what of them is not known."""
        known = any(stack.versions for stack in self.stacks)
        return " and ".join(dict.fromkeys(f"{stack.place}{_unless_known(stack, known)}" for stack in self.stacks))

    def runs_instead(self, labels: Iterable[str]) -> str:
        """What runs in place of all of some releases that are judged for, as it is not known; else nothing."""
        unknown = [stack.name for stack in self.stacks if stack.said and not stack.versions]
        if unknown and not any(stack.versions for stack in self.stacks):
            return f"{unknown[0]}, which is not known"
        known = {show(version) for stack in self.stacks if not stack.revision.is_older for version in stack.versions}
        is_older = any(stack.revision.is_older for stack in self.stacks) and known.isdisjoint(labels)
        return _OLDER if is_older else ""

    def __str__(self) -> str:
        """The line of every report: which Megatrons, from where."""
        first, *others = self.stacks
        if not others:
            return f"Judged for megatron-core {first.name}: {first.place}{_unless_known(first)}."
        known = any(stack.versions for stack in self.stacks)
        shown = [f"{stack.name} ({stack.place}{_unless_known(stack, known)})" for stack in self.stacks[:_SHOWN]]
        more = len(self.stacks) - _SHOWN
        rest = f" and {more} more, which `unpatch stacks` lists" if more > 0 else ""
        return f"Judged for megatron-core {', '.join(shown)}{rest}."

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        named = [stack.name for stack in self.stacks]
        releases = [show(version) for version in self.versions]
        return {"releases": releases, "why": self.why, "stacks": named, "files": list(self.files)}


def _unless_known(stack: Stack, others: bool = False) -> str:
    instead = "not judged for" if others else f"judged as {show(NEWEST)}"
    if stack.revision.is_older:
        instead = f"judged as {show(OLDEST)}"
    elif stack.versions:
        return ""
    return f"; {stack.revision.words}, {instead}"
