"""Every use of Megatron in a repository, patch or not, between two releases: what raises, and what changes silently."""

from __future__ import annotations

import ast
import gc
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise

from mcore_unpatch.errors import FileError
from mcore_unpatch.judge.asked import forgiven, raised
from mcore_unpatch.judge.changed import changed
from mcore_unpatch.judge.demands import CALL, IMPORT, Demand, Demands
from mcore_unpatch.judge.handed_over import HandedOver
from mcore_unpatch.judge.instead import leaf
from mcore_unpatch.judge.meaning import is_super
from mcore_unpatch.judge.options import gone, is_option
from mcore_unpatch.judge.overrides import overridden
from mcore_unpatch.judge.specs import fills, opened
from mcore_unpatch.judge.statement import RAISES, STOPS, Statement
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import api, known
from mcore_unpatch.megatron.layout import COMPILED
from mcore_unpatch.megatron.versions import within
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.conditions.call_sites import installer
from mcore_unpatch.scanner.names.bindings import forwards, own_class
from mcore_unpatch.scanner.names.project import Project
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.effort import Exhausted
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.parsing import Unreadable
from mcore_unpatch.scanner.sources.scopes import Binding
from mcore_unpatch.survey.search import Progress
from mcore_unpatch.upgrade.fates import Step, steps_in_words

_MOST_STEPS = 2_000_000  # for the names of one file
_MOST_READ = 3_000_000  # bytes of files between two looks for what is no longer used
# Code that puts whatever it reads somewhere on a namespace of arguments.
_OPENS = re.compile(
    rb"setattr\(\s*\w*args\w*\s*,\s*[^\"'\s]|Namespace\(\*\*|vars\(\w*args\w*\)(?:\[|\.update)|args\w*\.__dict__"
)
_ANY = "*"  # of a module that has all that one of Megatron's has
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(slots=True)
class Uses:
    """What was read of a repository, and what of it a step affects."""

    affected: list[Statement] = field(default_factory=list)
    files: int = 0  # that use Megatron, all of them read
    read: int = 0  # uses
    beyond: dict[str, int] = field(default_factory=dict)  # uses by package that the older release's source lacks
    unread: list[FileError] = field(default_factory=list)
    already: list[Statement] = field(default_factory=list)  # what raises on the older release too

    def drop_what_is_brought(self, carried: Sequence[str], read: Callable[[str], bytes], old: Model) -> None:
        """Leave out what no release has and a Megatron that the repository carries, or a patch file of it, brings.

        What the older one has itself, that Megatron maybe, is what the step loses.
        """
        every = (*self.affected, *self.already)
        nowhere = [use for use in every if not known.ever(use.name) and not known.holds(old, use.name)]
        texts = [_brought(path, read(path)) for path in carried] if nowhere else []
        brought = {use for use in nowhere if any(_brings(use).search(text) for text in texts)}
        self.affected = [use for use in self.affected if use not in brought]
        self.already = [use for use in self.already if use not in brought]


_OLD = "\0"  # stands for the older release in a text


def _brought(path: str, data: bytes) -> bytes:
    """What a file of a Megatron in the repository holds, or a patch file adds, behind the paths of new files."""
    if not path.endswith((".patch", ".diff")):
        return f"{path}\n".encode() + data
    lines = data.splitlines()
    new = [line for above, line in pairwise(lines) if above.startswith(b"--- /dev/null")]
    return b"\n".join([*new, *(line[1:] for line in lines if line.startswith(b"+") and not line.startswith(b"+++"))])


def _brings(use: Statement) -> re.Pattern[bytes]:
    """What defines a name, or is the file of a module that no release has."""
    module = use.demand.module if use.demand is not None else ""
    if module and not known.ever(module):
        return re.compile(rf"{re.escape(module.replace('.', '/'))}(?:/__init__)?\.py".encode())
    return re.compile(rf"\b(?:def|class)\s+{leaf(use.name)}\b|\b{leaf(use.name)}\s*=".encode())


def uses_of(paths: Iterable[str], project: Project, old: Model, new: Model) -> Uses:
    """Judge what every file that says Megatron uses of it, between two releases."""
    return uses_for(paths, project, [(old, new)])[0]


def uses_for(
    paths: Iterable[str], project: Project, steps: Sequence[tuple[Model, Model]], progress: Progress | None = None
) -> list[Uses]:
    """The same for several steps; each file is read once, those that import Megatron first."""
    by_step = [Uses() for _ in steps]
    every, read = list(paths), 0
    given = HandedOver(every, project.text, lambda path: project.parsed.tree(path, project.data(path)))
    own_spec = cache(lambda field: fills(field, map(project.text, every)))
    handed_on: dict[str, set[str]] = {}  # by file: what of Megatron's, or derived from it, others can import from there
    for index, path in enumerate(sorted(every, key=lambda path: not _imports_megatron(path, project))):
        if progress is not None:
            progress(index, len(every))
        try:
            if not _imports_megatron(path, project) and not _gets_it(path, project, handed_on):
                continue
            project.begin()
            home = project.resolver(path)
            read += len(home.model.data)
            if read > _MOST_READ:  # trees and scopes refer to each other: without this all of them stay
                gc.collect()
                read = 0
            demands = list(demands_of(home))
            handed_on[path] = set(_handed_on(home))
            for uses, (old, new) in zip(by_step, steps, strict=True):
                uses.files += bool(demands)
                uses.read += len(demands)
                with project.effort.at_most(_MOST_STEPS):
                    overrides = list(overridden(home, old, new, given))
                    uses.affected += (*overrides, *gone(home, old, new))
                    uses.affected += opened(home, old, new, own_spec)
                stopped = {statement.line for statement in overrides if statement.kind == STOPS}
                for demand in demands:
                    told = list(_judged(demand, old, new, uses))
                    around = getattr(demand.at.scope.function, "node", None)  # a function that Megatron calls no more?
                    is_left = getattr(around, "lineno", 0) in stopped or _is_replaced(demand, given)
                    uses.affected += told if not is_left else ()
        except FileNotFoundError:
            continue
        except (Unreadable, OSError, RecursionError, Exhausted) as error:
            for uses in by_step:
                uses.unread.append(FileError(path, str(error) or "too deep or too large to be read whole"))
    for uses in by_step:
        asked = [use for use in (*uses.affected, *uses.already) if _may_be_set(use)]
        setters = _setters({leaf(use.name) for use in asked}, every, project)
        ours = {id(use) for use in asked if _is_set_here(use, setters, project, given)}
        uses.affected = [use for use in uses.affected if id(use) not in ours]
        uses.already = [use for use in uses.already if id(use) not in ours]
        if any(map(is_option, uses.affected)) and any(_OPENS.search(project.text(path)) for path in every):
            uses.affected = [use for use in uses.affected if not is_option(use)]
        once = {(use.path, use.line, use.text): use for use in uses.affected}
        uses.affected = sorted(once.values(), key=lambda use: (not use.will_raise, use.path, use.line))
    return by_step


def _imports_megatron(path: str, project: Project) -> bool:
    data = project.text(path)
    return b"egatron" in data and prefilter.imports_megatron(prefilter.plain(data))


def _gets_it(path: str, project: Project, handed_on: dict[str, set[str]]) -> bool:
    """Whether a file imports something of Megatron's from another file of the repository, told by its bytes."""
    data = project.text(path)
    names = prefilter.imported_modules(data)
    modules = {name.rpartition(".")[0] for name in names}
    for name in names:
        module, _, leaf = name.rpartition(".")
        level = len(name) - len(name.lstrip("."))
        source = project.locate(path, module.lstrip("."), level) if leaf else None
        if source in handed_on and (leaf in handed_on[source] or _ANY in handed_on[source]):
            return True
        whole = project.locate(path, name.lstrip("."), level) if leaf and name not in modules else None
        if any(name == _ANY or f".{name}".encode() in data for name in handed_on.get(whole or "", ())):
            return True
    return False


def _handed_on(home: Resolver) -> Iterator[str]:
    """The names of a module that are Megatron's, and that others may import from it."""
    for name, bindings in home.model.scope.bindings.items():
        if any(_is_megatrons(binding, home) for binding in bindings):
            yield name
    if any(ref.is_core for ref in forwards(home)):
        yield _ANY


def _is_megatrons(binding: Binding, home: Resolver) -> bool:
    """An import of Megatron, or a class that derives from one of it."""
    node = binding.node
    if isinstance(node, ast.ClassDef):
        return own_class(node, home).is_core
    source = f"{node.module}." if isinstance(node, ast.ImportFrom) and not node.level else ""
    return isinstance(node, ast.Import | ast.ImportFrom) and within(f"{source}{binding.detail}")


def _may_be_set(use: Statement) -> bool:
    """Whether what a use lacks may be put there by the repository itself."""
    demand = use.demand
    if demand is not None and not known.ever(demand.name):
        return use.exception != "ModuleNotFoundError"  # a name that is set elsewhere brings no module
    return use.exception == "AttributeError" and not (demand is not None and (demand.through_class or demand.module))


@cache
def _sets(name: str) -> re.Pattern[bytes]:
    """An attribute of a name that is set: on `self`, on another object, by an option of the repository's own."""
    word = re.escape(name.encode())
    ways = rb"(\bself)?\.%b\s*(?::[^=\n]+)?=(?!=)|setattr\([^\n]*[\"']%b[\"']|[\"']--%b[\"']"
    return re.compile(ways % (word, word, word.replace(b"_", b"-")))


def _setters(names: set[str], paths: Sequence[str], project: Project) -> dict[str, dict[str, bool]]:
    """The files that set attributes of some names, and whether that is on `self` alone; each file is read once."""
    setters: dict[str, dict[str, bool]] = {name: {} for name in names}
    words = [(name, name.encode(), name.replace("_", "-").encode()) for name in names]
    for path in paths if names else ():
        text = project.text(path)
        for name, word, flag in words:
            if (word in text or flag in text) and (hits := _sets(name).findall(text)):
                setters[name][path] = all(hits)
    return setters


def _is_set_here(use: Statement, setters: dict[str, dict[str, bool]], project: Project, given: HandedOver) -> bool:
    """Whether a field that a class of Megatron's has no more is put on the object by the repository itself.

    What tests set counts for tests alone, what a class sets on `self` for classes that share a subclass with it.
    """
    owner, _, name = use.name.rpartition(".")
    for path, on_self in setters[name].items():
        if is_test(use.path) or not is_test(path):
            hits = _sets(name).findall(_around(use, project)) if path == use.path else [on_self]
            if hits and (not all(hits) or given.is_set_on(leaf(owner), name, path)):
                return True
    return False


def _around(use: Statement, project: Project) -> bytes:
    """The file of a use without the statement that it stands in, which may set what it reads."""
    lines, line = project.text(use.path).splitlines(), use.line
    nodes = walk(use.demand.at.home.model.tree) if use.demand is not None and use.demand.when == IMPORT else ()
    for node in nodes:
        if isinstance(node, ast.Assign) and node.lineno <= line <= (node.end_lineno or 0):
            lines[node.lineno - 1 : node.end_lineno] = []
            break
    return b"\n".join(lines)


def outermost(use: Statement) -> str:
    """The function that has to be called for the line to run; empty for what runs when its file is imported."""
    return installer(use.demand.at.scope) if use.demand is not None and use.demand.when == CALL else ""


def joined(several: Sequence[Uses], steps: Sequence[Step]) -> Uses:
    """What several steps do together: what is said of each line, and by which of them."""
    first = several[0]
    if len(several) == 1:
        return first
    found: dict[tuple[object, ...], tuple[Statement, dict[Step, None]]] = {}
    for uses, step in zip(several, steps, strict=True):
        for use in uses.affected:  # what steps from several releases say alike is said once
            text = use.text.replace(f" on {step[0].label}", f" on {_OLD}")
            found.setdefault((use.path, use.line, use.kind, text), (replace(use, text=text), {}))[1][step] = None
    told = []
    for use, some in ((use, list(some)) for use, some in found.values()):
        said = replace(use, text=use.text.replace(_OLD, ", ".join(dict.fromkeys(old.label for old, _ in some))))
        told.append(said if len(some) == len(steps) else replace(said, steps=steps_in_words(some, steps)))
    wrong = [{(use.path, use.line) for use in uses.already} for uses in several]
    first.already = [use for use in first.already if all((use.path, use.line) in places for places in wrong)]
    first.affected = sorted(told, key=lambda use: (not use.will_raise, use.path, use.line))
    return first


def demands_of(home: Resolver) -> Iterator[Demand]:
    """What one file asks of Megatron: when it is imported, and in each of its functions."""
    asks = Demands(follow=False)
    with home.project.effort.at_most(_MOST_STEPS):
        yield from asks.of_import(home)
        for cls in home.model.classes:
            for item in (*cls.bases, *cls.decorator_list, *cls.body):
                if not isinstance(item, _DEFINITIONS | ast.Import | ast.ImportFrom):
                    yield from asks.of_code(ast.Expr(item) if isinstance(item, ast.expr) else item, home, IMPORT, False)
        lambdas = (node for node in walk(home.model.tree) if isinstance(node, ast.Lambda))
        for function in (*home.model.functions, *lambdas):
            yield from asks.of_code(function, home, CALL, inner=False)


def _is_replaced(demand: Demand, given: HandedOver) -> bool:
    """Whether a call on an object may reach a method that a class of the repository puts in the place of Megatron's."""
    owner, _, method = demand.name.rpartition(".")
    called = demand.node.func if isinstance(demand.node, ast.Call) and not demand.through_class else None
    return isinstance(called, ast.Attribute) and not is_super(called.value) and given.replaces(owner, method)


def _judged(demand: Demand, old: Model, new: Model, uses: Uses) -> Iterator[Statement]:
    name = demand.name
    if package := known.lacking(old, name) or known.lacking(new, name):
        uses.beyond[package] = uses.beyond.get(package, 0) + 1
    if not known.holds(old, name) and not any(known.holds(old, other) for other in demand.also):
        yield from _unknown_to(old, demand, new, uses)
        return
    statements = list(raised(demand, new, old))
    if statements:
        already = {statement.exception for statement in raised(demand, old)}
        uses.already += [replace(one, demand=demand) for one in statements if one.exception in already]
        statements = [statement for statement in statements if statement.exception not in already]
    elif demand.call is not None or demand.through_class:  # a field of an object has what its maker gave it
        before = old.find(demand.on(old).name)
        evident = before is not None and before.fact.trait("gives") is not None
        said = changed(demand, old, new)
        statements = [one for one in said if evident or one.kind == RAISES or not one.text.startswith("unpacks")]
    statements += forgiven(demand, new) if not statements else ()
    yield from (replace(statement, demand=demand) for statement in statements)


def _unknown_to(old: Model, demand: Demand, new: Model, uses: Uses) -> Iterator[Statement]:
    """A use of what the older release has not: what raises on the newer one is the step's doing where it may have it.

    It may where its wheel lacks the package, and where no release has the name: what runs the file is none of them.
    """
    names = (demand.name, *demand.also)
    package = known.lacking(old, demand.name)
    if any(name.startswith(COMPILED) or leaf(name).startswith("__") for name in names):
        return
    statements = list(raised(demand, new)) or (forgiven(demand, new) if package else ())
    told = [replace(statement, demand=demand) for statement in statements]
    if package or not told:
        yield from told
    elif any(map(known.ever, names)):
        told = [statement for statement in told if any(raised(demand, old))]
        if any(known.came_after(name, old.label) for name in names):  # so the Megatron in use is another one
            yield from (replace(one, text=f"{one.text}; {old.label} does not have it yet") for one in told)
        else:
            uses.already += told
    elif demand.module or ((holder := api.lookup(demand.name.rpartition(".")[0])) and holder.kind == "module"):
        if demand.when == IMPORT:
            yield from told
        else:
            uses.already += told
