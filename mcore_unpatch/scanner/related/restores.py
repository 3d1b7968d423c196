"""One finding per patch: installs and what is removed, without restores; which patches are undone, which stay."""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple, TypeVar

from mcore_unpatch.findings.finding import Related
from mcore_unpatch.library.syntax import Nodes
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.names.strings import strings
from mcore_unpatch.scanner.related.replacement import find
from mcore_unpatch.scanner.shapes.install import Install, method_in
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import Scope, Site, last_name, path_text

_KEPT = re.compile(r"orig|backup|\bbak|_bak|saved|\bold|_old|prev|unpatched|_real\b|vanilla|default_", re.IGNORECASE)


def split_restores(installs: list[Install], resolver: Resolver) -> list[Install]:
    """Installs without the restores among them; each restore is attached to the installs it takes back."""
    backups = backup_attributes(resolver)
    counts = Counter(map(_key, installs))
    patches: dict[tuple[str, str], list[Install]] = {}
    restores, kept = [], []
    for install in installs:
        verdict = _restores(install, resolver, backups)
        if verdict == "yes" or (verdict == "maybe" and counts[_key(install)] > 1):
            restores.append(install)
        else:
            kept.append(install)
            patches.setdefault(_key(install), []).append(install)
    taken_back: dict[tuple[str, str], list[Site]] = {}
    for restore in restores:
        taken_back.setdefault(_key(restore), []).append(restore.site)
    deleted, again = _given_back(resolver), _put_back_again(installs, resolver)
    for key, same in patches.items():
        sites = sorted([*taken_back.get(key, ()), *deleted.get(key[1], ())], key=lambda site: site.node.lineno)
        resolver.project.effort.spend(len(sites))
        homes = {site: _home(site, resolver) for site in sites}
        apart = any(homes.values())
        of_function: dict[Scope | None, list[Site]] = {}
        for install in same:
            function = install.site.scope.function
            if function not in of_function:
                within = {None, *(function.outwards() if function is not None else ())}
                of_function[function] = [site for site in sites if homes[site] in within] if apart else sites
            seen = again.get((install.attribute, ast.dump(install.base) if install.base else "", function), [])
            install.restores = [*of_function[function], *seen] if seen else of_function[function]
    return kept


def _put_back_again(installs: Iterable[Install], resolver: Resolver) -> dict[tuple[str, str, Scope | None], list[Site]]:
    """Where a function puts back what it read, by the attribute, its object and the function.

    Of an object that is known by its name alone these are no patches.
    """
    attributes, known = {install.attribute for install in installs}, {id(install.site) for install in installs}
    put_back: dict[tuple[str, str, Scope | None], list[Site]] = {}
    for site in resolver.model.sites:
        target = site.target
        if isinstance(target, ast.Attribute) and target.attr in attributes and id(site) not in known:
            if (home := _home(site, resolver)) is not None:
                put_back.setdefault((target.attr, ast.dump(target.value), home), []).append(site)
    return put_back


def _home(site: Site, resolver: Resolver) -> Scope | None:
    """The function that read the original into a local and puts that back, as it found it; None for all else."""
    name = site.value.id if isinstance(site.value, ast.Name) else ""
    holder = next((scope for scope in site.scope.outwards() if name in scope.bindings), None)
    if holder is None or site.target is None:
        return None
    read = resolver.kept((_read_into, holder, name), partial(_read_into, holder, name))
    return holder.function if read == {last_name(site.target)} else None


def _read_into(holder: Scope, name: str) -> set[str]:
    """The attributes that a local is read from; nothing for what is no attribute."""
    return {getattr(binding.node, "attr", "") for binding in holder.bindings[name]}


def _key(install: Install) -> tuple[str, str]:
    return install.owner, install.attribute


def backup_attributes(resolver: Resolver) -> dict[str, str]:
    """`x.kept = x.name`: kept -> name, over the whole module."""
    backups = {}
    for site in resolver.model.sites:
        value = method_in(site.value) if site.value is not None else None
        if isinstance(site.target, ast.Attribute) and isinstance(value, ast.Attribute):
            if site.target.attr != value.attr:
                backups[site.target.attr] = value.attr
    return backups


def _restores(install: Install, resolver: Resolver, backups: dict[str, str]) -> str:
    """Whether an assignment puts the original back: yes, maybe (it is called so), or no."""
    if install.value is None or install.mock or isinstance(install.value, ast.IfExp):
        return "no"  # `new if recent else original` does both
    value = method_in(install.value)
    ref = resolver.at(install.site).expr(value)
    if ref is not None and ref.kind == "local-function":
        return "no"
    if isinstance(value, ast.Call) and find(install, resolver).function is not None:
        return "no"  # a factory that may return the original as it is, and else a wrapper
    if ref is not None and ref.name == install.target and not ref.via and ref.node is None:
        return "yes"
    if isinstance(value, ast.Attribute) and backups.get(value.attr) == install.attribute:
        return "yes"
    if isinstance(value, ast.Name) and _holds_original(value.id, install, resolver):
        return "yes"
    if isinstance(value, ast.Call) and last_name(value.func) not in {"getattr", "get", "pop"}:
        return "no"
    if isinstance(value, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and _KEPT.search(ast.unparse(value)):
        return "maybe"
    return "no"


def _holds_original(name: str, install: Install, resolver: Resolver) -> bool:
    """Whether a local was read from the very attribute that is assigned."""
    bindings = next((scope.bindings[name] for scope in install.site.scope.outwards() if name in scope.bindings), [])
    values = [binding.node for binding in bindings]
    resolver.project.effort.spend(len(values))
    return bool(values) and all(
        isinstance(value, ast.Attribute)
        and value.attr == install.attribute
        and install.base is not None
        and ast.dump(value.value) == ast.dump(install.base)
        for value in values
    )


def removals(installs: Iterable[Install], resolver: Resolver) -> list[Install]:
    """What a file removes from Megatron's classes and modules and has not put there: patches as well."""
    known = {(install.owner, install.attribute) for install in installs}
    taken_back = []
    for site, subject, names in _deleted(resolver):
        base = resolver.at(site).expr(subject)
        if base is None or not base.is_core or base.node is not None or base.kind not in {"class", "module"}:
            continue
        shape = f"{base.kind}-attr" if isinstance(site.node, ast.Delete) else "setattr"
        taken_back += [
            Install(site, site.node, f"{base.name}.{name}", shape, base.sure, base.why, None, base.name, name, subject)
            for name in names
            if base.has(name) and (base.name, name) not in known
        ]
    return taken_back


def _deleted(resolver: Resolver) -> Iterator[tuple[Site, ast.expr, list[str]]]:
    """`del obj.name` and `delattr(obj, "name")`."""
    for site in resolver.model.sites:
        if isinstance(site.node, ast.Delete) and isinstance(site.target, ast.Attribute):
            yield site, site.target.value, [site.target.attr]
    for site in resolver.model.calls:
        if path_text(site.call.func) == "delattr" and len(site.call.args) == 2:
            subject, name = site.call.args
            yield site, subject, strings(name, resolver.at(site))


def _given_back(resolver: Resolver) -> dict[str, list[Site]]:
    """Where the class's own method is given back, by its name: by a deletion, or later by an exit stack."""
    given_back: dict[str, list[Site]] = {}
    callbacks = [(site, site.call.args) for site in resolver.model.calls if _is_callback(site)]
    sets = [(site, args) for site, args in callbacks if len(args) == 4 and path_text(args[0]) == "setattr"]
    later = [(site, strings(args[2], resolver.at(site))) for site, args in sets]
    for site, names in (*((site, names) for site, _, names in _deleted(resolver)), *later):
        if len(names) == 1:
            given_back.setdefault(names[0], []).append(site)
    return given_back


class Undone:
    """Which patches of a file are undone: asked once for each function and what takes its patches back."""

    def __init__(self, resolver: Resolver) -> None:
        self._resolver = resolver
        self._known: dict[tuple[int, Scope | None], bool] = {}
        self._near: dict[int, dict[Scope, list[Site]]] = {}

    def is_temporary(self, install: Install) -> bool:
        """Whether the patch is undone by a `finally`, a generator (context manager, fixture) or an `__exit__`."""
        function = install.site.scope.function
        key = (id(install.restores), function)
        if key not in self._known:
            sites = self._beside(install, function) if function is not None else ()
            self._known[key] = any(_undoes(site, function) for site in sites if function is not None)
        return install.mock or self._known[key] or _is_for_a_while(install.site)

    def _beside(self, install: Install, function: Scope) -> Iterator[Site]:
        """The restores of a patch in its function, in those around and within, and beside an `__enter__`."""
        key = id(install.restores)
        if key not in self._near:
            near = self._near[key] = {}
            for site in install.restores:
                for scope in site.scope.function.outwards() if site.scope.function is not None else ():
                    near.setdefault(scope, []).append(site)
        enters = getattr(function.node, "name", "").endswith("enter__")
        for scope in function.outwards():
            if scope.kind == "function" or (enters and scope is function.parent):
                sites = self._near[key].get(scope, ())
                self._resolver.project.effort.spend(len(sites))
                yield from sites


def _is_for_a_while(site: Site) -> bool:
    """Whether a call that makes a patch is one that ends: of a `with`, of an exit stack, around a function."""
    if isinstance(site.statement, ast.With | ast.AsyncWith):
        return any(site.node is node for item in site.statement.items for node in walk(item.context_expr))
    if isinstance(site.node, ast.Call) and site.decorated is not None:
        return (path_text(site.node.func) or "").rpartition(".")[0].endswith("patch")
    around = site.statement.value if isinstance(site.statement, ast.Expr | ast.Assign) else None
    return isinstance(around, ast.Call) and (path_text(around.func) or "").endswith(".enter_context")


def _undoes(site: Site, function: Scope) -> bool:
    """Whether a restore takes back, sooner or later, what a function patches."""
    other = site.scope.function
    assert other is not None
    if function in other.outwards() or other in function.outwards():
        inner = takewhile(lambda block: block.kind != "function", site.block.outwards())
        if any(block.kind == "finally" for block in inner) or _is_callback(site):
            return True
        if not {ast.Yield, ast.YieldFrom}.isdisjoint(Nodes([function.node]).own):
            return True
    names = (getattr(function.node, "name", ""), getattr(other.node, "name", ""))
    return function.parent is other.parent and names in {("__enter__", "__exit__"), ("__aenter__", "__aexit__")}


def _is_callback(site: Site) -> bool:
    """`stack.callback(setattr, obj, "name", original)`."""
    func = getattr(site.node, "func", None)
    return isinstance(func, ast.Attribute) and func.attr == "callback"


T = TypeVar("T")

_SHOWN = 40  # lines of one role, those nearest to the patch


class _Place(NamedTuple):
    """Where an attribute of an object is kept: under a local name, or as an attribute of something."""

    attribute: str
    subject: str
    scope: Scope | None
    as_attribute: bool


class Surroundings:
    """Reads and writes of one module, collected once for all its patches."""

    def __init__(self, installs: Sequence[Install], resolver: Resolver) -> None:
        self._module = resolver.model.scope
        self._attributes = {install.attribute for install in installs}
        self._reads: dict[_Place, list[int]] = {}
        model = resolver.model
        for site in model.sites:
            if isinstance(site.target, ast.Attribute) and site.value is not None:
                self._add_read(site.value, site.scope, site.node.lineno, site.target.attr)
        for scope in (model.scope, *model.functions.values(), *model.classes.values()):
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if binding.kind == "value" and isinstance(binding.node, ast.expr):
                        self._add_read(binding.node, scope, binding.line, "")
        for lines in self._reads.values():
            lines.sort()

    def related_lines(self, install: Install) -> tuple[Related, ...]:
        """The lines that belong to a patch, by role."""
        here = _line(install)
        restores = [site.node.lineno for site in nearest(install.restores, here, lambda site: site.node.lineno)]
        found = {Related(line, "restore") for line in restores}
        found |= {Related(line, "backup") for line in self._backups(install)}
        return tuple(sorted(item for item in found if item.line != here))

    def _add_read(self, value: ast.expr, scope: Scope, line: int, kept_as: str) -> None:
        subject, name = None, ""
        if isinstance(value, ast.Attribute):
            subject, name = value.value, value.attr
        elif isinstance(value, ast.Call) and path_text(value.func) == "getattr" and len(value.args) >= 2:
            if isinstance(value.args[1], ast.Constant) and isinstance(value.args[1].value, str):
                subject, name = value.args[0], value.args[1].value
        if subject is None or name not in self._attributes or kept_as == name:
            return
        # What an attribute holds is seen in its whole function, a local where it stands and below.
        home = (None if scope.kind == "module" else scope.function) if kept_as else scope
        for text in (ast.dump(subject), ""):  # "": for a patch of which the object is not known
            self._reads.setdefault(_Place(name, text, home, bool(kept_as)), []).append(line)

    def _backups(self, install: Install) -> set[int]:
        """Lines that keep the attribute a patch replaces, read from the same object."""
        base = ast.dump(install.base) if install.base is not None else ""
        name, scope = install.attribute, install.site.scope
        places = [_Place(name, base, home, True) for home in {None, scope.function}]
        places += [_Place(name, base, home, False) for home in {*scope.outwards(), self._module}]
        lines = [self._reads[place] for place in places if place in self._reads]
        return {line for some in lines for line in nearest(some, _line(install), int)}


def nearest(places: Sequence[T], line: int, line_of: Callable[[T], int]) -> Sequence[T]:
    """The places nearest to a line, of which there may be very many; they are sorted by their lines."""
    index = bisect_left(places, line, key=line_of)
    return places[max(0, index - _SHOWN // 2) : index + _SHOWN // 2]


def _line(install: Install) -> int:
    return install.node.lineno  # type: ignore[attr-defined,no-any-return]
