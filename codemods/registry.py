"""The codemods: those of this package, found by looking into `catalogue`, and those that others announce."""

from __future__ import annotations

import pkgutil
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from mcore_unpatch.codemods import catalogue
from mcore_unpatch.codemods.codemod import Codemod
from mcore_unpatch.editing.edits import LEVELS, Repository
from mcore_unpatch.errors import FileError, UsageError
from mcore_unpatch.findings.rules import Selection
from mcore_unpatch.scanner.sources.parsed import Parsed
from mcore_unpatch.survey.parallel import ScannedPart, Task

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mcore_unpatch.codemods"
_CODE = re.compile(r"[A-Z]{2,}[0-9]{3}")
_OWN = "MCU"


@cache
def codemods() -> tuple[Codemod, ...]:
    """Every codemod, by name; raises `UsageError` for one of another package that cannot be used."""
    return (*own(), *_of_others())


@cache
def own() -> tuple[Codemod, ...]:
    """Those of this package."""
    codemods = []
    for module in pkgutil.iter_modules(catalogue.__path__):
        own_names = vars(import_module(f"{catalogue.__name__}.{module.name}")).values()
        kinds = [kind for kind in own_names if _is_codemod(kind) and kind.__module__.endswith(module.name)]
        codemods += [kind() for kind in kinds if hasattr(kind, "name")]  # else what several have in common
    return tuple(sorted(codemods, key=lambda codemod: codemod.name))


def folders() -> list[Path]:
    """Where the code of this package's own codemods is."""
    return [Path(folder).parent for folder in catalogue.__path__]


def finders(wanted: Callable[[str], bool]) -> list[Codemod]:
    """The codemods that find something themselves, of the rules that are wanted."""
    return [codemod for codemod in codemods() if any(wanted(rule.code) for rule in codemod.rules)]


def offers(repository: Repository, selection: Selection) -> list[str]:
    """What codemods offer where nothing is wrong, that is not selected: where, what is gained, and by which option."""
    told = []
    for codemod in codemods():
        unasked = codemod.offers and not any(rule.code in selection for rule in codemod.rules)
        for word in codemod.words if unasked else ():
            for source in repository.sources_saying(word.decode()):
                for match in codemod.find(source):
                    place = f"{source.path}:{match.node.lineno}"
                    told.append(f"{place}  {codemod.offers}: unpatch migrate --select {codemod.name}")
    return told


def words(wanted: Callable[[str], bool]) -> tuple[bytes, ...]:
    """A file without one of these has nothing that a codemod finds itself."""
    return tuple(dict.fromkeys(word for codemod in finders(wanted) for word in codemod.words))


@cache
def answered() -> frozenset[str]:
    """The rules of the scanner that some codemod says it has changes for."""
    return frozenset(code for codemod in codemods() for code in codemod.answers)


def complete(
    part: ScannedPart,
    task: Task,
    parsed: Parsed,
    wanted: Callable[[str], bool],
    downstreams: Callable[[], Repository] | None = None,
) -> None:
    """Add what the codemods find to what the scanner found: in the files that say one of their words.

    `downstreams` is the repository with what is known of them, where it will be asked for anyway.
    """
    known, some = {error.path for error in part.errors}, finders(wanted)
    saying = {path: _saying(task.read(path), some) for path in part.saying if path not in known}
    asked = {path: finding for path, finding in saying.items() if finding}
    if not asked:
        return
    repository = Repository([*asked], task.exists, task.read, parsed=parsed)
    repository.paths = _with_those_between(repository, [*asked], some)
    errors = set()
    own_findings = tuple(part.findings)
    for codemod in some:
        with blaming(codemod):
            said = any(codemod in few for few in asked.values())
            where = downstreams() if said and downstreams and codemod.contract else repository
            for more in codemod.findings(where, own_findings) if said else ():
                if isinstance(more, FileError):
                    errors.add(more)
                elif more.path in asked:
                    part.findings.append(more)
    repository.close()
    part.errors += sorted(error for error in errors if error.path in asked)


@contextmanager
def blaming(codemod: Codemod) -> Iterator[None]:
    """What goes wrong in the code of another package is said with its name, not as a traceback of ours."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:
        if not codemod.package:
            raise
        what = f"the codemod {codemod.name!r} of {codemod.package} failed"
        raise UsageError(f"{what}: {_said(error)}; report it there, or uninstall it") from None


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _is_codemod(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Codemod) and value is not Codemod


def _with_those_between(repository: Repository, asked: list[str], finding: Sequence[Codemod]) -> tuple[str, ...]:
    """The files that were asked for, and others of the repository that may pass a name on to them."""
    chosen = dict.fromkeys(asked)
    waiting = list(asked)
    while waiting:
        for target in repository.imported(waiting.pop()):
            if target not in chosen and _saying(repository.text(target), finding):
                chosen[target] = None
                waiting.append(target)
    return tuple(chosen)


def _saying(data: bytes, finding: Sequence[Codemod]) -> list[Codemod]:
    """The codemods that may find something in a file."""
    return [codemod for codemod in finding if codemod.says(data)]


def _of_others() -> Iterator[Codemod]:
    # Not from where the user stands: nothing in a repository is run because it is scanned.
    folders = [folder for folder in sys.path if folder and Path(folder) != Path.cwd()]
    if not any(map(_may_announce, folders)):
        return
    from importlib.metadata import distributions

    announcing = [one for one in distributions(path=folders) if one.entry_points.select(group=GROUP)]
    installed = {str(one.name): one for one in reversed(announcing)}  # the first on the path counts
    taken = {rule.code: "this package" for codemod in own() for rule in codemod.rules}
    names = {codemod.name: "this package" for codemod in own()}
    for _, distribution in sorted(installed.items()):
        package = f"{distribution.name} {distribution.version}"
        for point in sorted(distribution.entry_points.select(group=GROUP), key=lambda point: point.name):
            codemod = _loaded(point, package)
            _check_names(codemod, taken, names)
            taken |= dict.fromkeys((rule.code for rule in codemod.rules), package)
            names[codemod.name] = package
            yield codemod


def _check_names(codemod: Codemod, taken: dict[str, str], names: dict[str, str]) -> None:
    """Raise `UsageError` for a code or a name that the codemod cannot have."""
    for rule in codemod.rules:
        if rule.code.startswith(_OWN) or not _CODE.fullmatch(rule.code):
            raise _broken(codemod.package, f"its rule {rule.code!r} needs a code of its own, such as ACME101")
        if rule.code in taken:
            raise _broken(codemod.package, f"its rule {rule.code} is one of {taken[rule.code]}")
        if not any(rule.code.startswith(prefix) for prefix in codemod.families):
            raise _broken(codemod.package, f"its rule {rule.code} belongs to none of its families")
    if codemod.name in names:
        raise _broken(codemod.package, f"its name {codemod.name!r} is taken by {names[codemod.name]}")


def _loaded(point: EntryPoint, package: str) -> Codemod:
    try:
        kind = point.load()
    except Exception as error:
        raise _broken(package, _said(error)) from None
    if not _is_codemod(kind):
        raise _broken(package, f"{point.value} is no subclass of {Codemod.__module__}.Codemod")
    wanted = ("name", "title", "covers", "examples", *(["words"] if kind.rules else []))
    missing = [name for name in wanted if not getattr(kind, name, "")]
    if missing:
        raise _broken(package, f"{kind.__name__} does not say its {missing[0]}")
    known = {*dir(Codemod), *Codemod.__annotations__}
    own = (part for each in kind.__mro__ if _is_codemod(each) for part in vars(each).items() if part[0] not in known)
    for name, value in own:  # methods, classes and private names are its own matter
        if not (name.startswith("_") or callable(value) or hasattr(value, "__get__")):
            raise _broken(package, f"{kind.__name__} says `{name}`, which no codemod has")
    if kind.level not in LEVELS:
        raise _broken(package, f"{kind.__name__} has the level {kind.level!r}, and not one of {', '.join(LEVELS)}")
    try:
        codemod: Codemod = kind()
    except Exception as error:
        raise _broken(package, _said(error)) from None
    codemod.package = package
    return codemod


def _broken(package: str, why: str) -> UsageError:
    return UsageError(f"the codemods of {package} cannot be used: {why}; update or uninstall it")


def _may_announce(folder: str) -> bool:
    """Whether something installed in a folder has codemods, told by bytes: to load the metadata of all takes longer."""
    group = GROUP.encode()
    try:
        if not Path(folder).is_dir():
            return Path(folder).is_file()  # a zip file
        for entry in Path(folder).iterdir():
            if entry.suffix in {".dist-info", ".egg-info"}:
                points = entry / "entry_points.txt"
                if points.is_file() and group in points.read_bytes():
                    return True
    except OSError:
        return False
    return False
