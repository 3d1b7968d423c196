"""The function behind a patch, in any file of the repository; all patches that install it, and who else uses it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from mcore_unpatch.codemods.seams.patch import Patch, find_patch
from mcore_unpatch.codemods.source import Function, Source
from mcore_unpatch.codemods.syntax import bound_by_import, dotted, leaf, walk_without
from mcore_unpatch.codemods.workbench import Workbench


@dataclass(frozen=True)
class InstalledCopy:
    """A patch and the file that defines its function; the patch has the function, be it of another file."""

    patch: Patch
    home: Source

    @property
    def function(self) -> Function:
        """What is installed."""
        assert self.patch.function is not None
        return self.patch.function

    @property
    def is_here(self) -> bool:
        """Whether the function stands in the file of the patch."""
        return self.home.path == self.patch.source.path


def installed(patch: Patch) -> InstalledCopy | None:
    """What a patch installs, bound to the model; None where it is no function of the repository."""
    if patch.function is not None and patch.bound:
        return InstalledCopy(patch, patch.source)
    name = dotted(bound_function(patch))
    files, source = patch.situation.files, patch.source
    for path, original in _origins(files, source).get(name, {source.path: name}).items():
        home = source if path == source.path else files.readable(path)
        functions = [node for node in home.tree.body if isinstance(node, Function)] if home else []
        found = [node for node in functions if node.name == original]
        if home is not None and len(found) == 1:
            return InstalledCopy(replace(patch, function=found[0], bound=True), home)
    return None


def all_installed(one: InstalledCopy) -> list[InstalledCopy]:
    """The patches that install the same function, this one among them."""
    patches = (find_patch(replace(one.patch.situation, finding=finding)) for finding in one.patch.situation.open)
    found = [place for patch in patches if patch is not None and (place := installed(patch))]
    key = one.home.path, one.function.lineno
    return [place for place in found if (place.home.path, place.function.lineno) == key]


def used_by_others(one: InstalledCopy, places: Sequence[InstalledCopy]) -> str:
    """Where the function is used for more than these patches."""
    name, files = one.function.name, one.patch.situation.files
    statements = [place.patch.statement for place in places]
    if _is_used(one.home, {name}, statements):
        return f"`{name}` is also used elsewhere"
    if one.home.function_of(one.function) is not None:
        return ""  # nobody else can reach it
    for source in files.sources_saying(name):
        origins = _origins(files, source)
        names = {said for said, found in origins.items() if found.get(one.home.path) == name}
        quoted = (node.value for node in source.every(ast.Constant) if isinstance(node.value, str))
        spelt = any(text.endswith(f".{name}") and one.home.path.endswith(_path_of(text)) for text in quoted)
        if source.path != one.home.path and (spelt or _is_used(source, names, statements)):
            return f"`{name}` is named in {source.path}"
    return ""


def bound_function(patch: Patch) -> ast.expr:
    """`f` of `f.__get__(model)`, `MethodType(f, model)` and `partial(f, model)`, or of a patch of the class."""
    value = patch.statement.value
    if patch.bound and not isinstance(value, ast.Call):
        return value
    match value:
        case ast.Call(func=ast.Attribute(value=function, attr="__get__")):
            return function
        case ast.Call(args=[function, model], keywords=[]) if leaf(value.func) in {"MethodType", "partial"}:
            return function if ast.unparse(model) == ast.unparse(patch.target.value) else value
    return value


def _origins(files: Workbench, source: Source) -> dict[str, dict[str, str]]:
    """What dotted names of a file may stand for: a path of the repository and the name there."""
    found: dict[str, dict[str, str]] = {}
    for node in source.every(ast.ImportFrom):
        for alias in node.names:
            bound = bound_by_import(alias, node)
            if path := files.locate(source.path, node.module or "", node.level):
                found.setdefault(bound, {})[path] = alias.name
            inner = ".".join(filter(None, (node.module, alias.name)))
            if path := files.locate(source.path, inner, node.level):
                found |= {f"{bound}.{name}": {path: name} for name in _attributes(source, bound)}
    for plain in source.every(ast.Import):
        for alias in plain.names:
            bound = alias.asname or alias.name
            if path := files.locate(source.path, alias.name, 0):
                found |= {f"{bound}.{name}": {path: name} for name in _attributes(source, bound)}
    return found


def _attributes(source: Source, module: str) -> Iterator[str]:
    for node in source.every(ast.Attribute):
        if dotted(node.value) == module:
            yield node.attr


def _is_used(source: Source, names: Collection[str], apart_from: Sequence[ast.stmt]) -> bool:
    """Whether code reads one of some dotted names, these statements left out."""
    nodes = (node for node in walk_without(source.tree, apart_from) if isinstance(node, ast.Name | ast.Attribute))
    return any(dotted(node) in names and isinstance(node.ctx, ast.Load) for node in nodes) if names else False


def _path_of(text: str) -> str:
    """`pkg/module.py` of `pkg.module.name`."""
    return text.rpartition(".")[0].replace(".", "/") + ".py"
