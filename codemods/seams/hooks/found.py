"""The function behind what is assigned: beside it, a method, or what a factory, a lambda or a `partial` makes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcore_unpatch.codemods.changes import Change, Header
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.family import derived
from mcore_unpatch.codemods.seams.hooks.form import has_comments_in_header
from mcore_unpatch.codemods.seams.patch import Patch, bound_to, defined
from mcore_unpatch.codemods.syntax import body_of, identifiers, imported, is_name, leaf, parameters
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import as_name
from mcore_unpatch.editing.source import Source
from mcore_unpatch.library.syntax import dotted

NOT_BESIDE = "the wrapper is no function that is defined next to the assignment"
_CLS = "cls"


@dataclass(frozen=True)
class Made:
    """The function that runs around the original, and the expression that gives it."""

    source: Source
    function: ast.FunctionDef
    hook: str  # as it is registered
    original: str = ""  # how the function names it, where that is not what the patch has kept
    given: tuple[str, ...] = ()  # its first parameters, which do not come with a call
    maker: ast.FunctionDef | None = None  # the factory that it stands in
    changes: list[Change] = field(default_factory=list)  # of that
    of_class: str = ""  # how it names the class whose modules it is for
    expression: ast.Lambda | None = None


def behind(patch: Patch, kept: str, files: Workbench) -> Made | str:
    """The function of a patch, or why it is not found; `kept` is the name of the original beside the patch, if any."""
    value, around = patch.value, patch.around
    if isinstance(value, ast.Lambda):
        returned = ast.copy_location(ast.Return(value.body), value.body)
        named = ast.FunctionDef(name="the lambda", args=value.args, body=[returned], decorator_list=[])  # type: ignore[call-overload]
        return Made(patch.source, ast.copy_location(named, value), "", expression=value)
    if isinstance(value, ast.Attribute):
        return _method(patch, value, files)
    if isinstance(value, ast.Call) and not patch.function and isinstance(value.func, ast.Name | ast.Attribute):
        is_partial = leaf(value.func) == "partial"
        return _partial(patch, value, kept, files) if is_partial else _factory(patch, value, kept, files)
    function, whole = patch.function, patch.finding.shape == "class-attr"
    if not isinstance(function, ast.FunctionDef) or not (whole or (around and function in ast.walk(around))):
        return NOT_BESIDE
    module = bound_to(value) if isinstance(value, ast.Call) else None
    if module is not None and ast.unparse(module) != ast.unparse(patch.target.value):
        return f"`{function.name}` is bound to an object other than the module"
    scope = around if around is not None and function in ast.walk(around) else patch.source.tree
    if sum(is_name(node, function.name) for node in ast.walk(scope)) != 1:
        return f"`{function.name}` is also used elsewhere"
    because = used_by_others(function.name, patch.source, files) if scope is not around else ""
    return because or Made(patch.source, function, function.name)


def used_by_others(name: str, home: Source, files: Workbench) -> str:
    """Whether other files use a name of this one."""
    others = (source for source in files.sources_saying(as_name(name)) if source is not home)
    return f"`{name}` is also used by other files" if any(_imports(source, name) for source in others) else ""


def _imports(source: Source, name: str) -> bool:
    """Whether a file may take a name from another one."""
    named = any(alias.name in {name, "*"} for node in source.every(ast.ImportFrom) for alias in node.names)
    return named or any(node.attr == name for node in source.every(ast.Attribute))


def _method(patch: Patch, value: ast.Attribute, files: Workbench) -> Made | str:
    """`module.forward = self.wrapped`: a method of the class around the patch."""
    around = patch.around
    cls = patch.source.parents.get(around) if around else None
    if not isinstance(cls, ast.ClassDef) or around is None or not parameters(around):
        return NOT_BESIDE
    owner = parameters(around)[0]
    found = [one for one in cls.body if isinstance(one, ast.FunctionDef) and one.name == value.attr]
    if not is_name(value.value, owner) or len(found) != 1 or parameters(found[0])[:1] != [owner]:
        return NOT_BESIDE
    if sum(leaf(node) == value.attr for node in patch.source.every(ast.Attribute)) != 1:
        return f"`{value.attr}` is also used elsewhere"
    for source, other in derived({cls.name}, files):
        if any(getattr(one, "name", "") == value.attr for one in other.body):
            return f"{source.path}:{other.lineno} has a `{value.attr}` of its own"
    because = used_by_others(value.attr, patch.source, files)
    return because or Made(patch.source, found[0], ast.unparse(value), given=(owner,))


def _given(patch: Patch, call: ast.Call, kept: str) -> ast.expr | str:
    """The argument of a call that is the original, or else the module itself."""
    every = [*call.args, *(keyword.value for keyword in call.keywords)]
    for texts in ({ast.unparse(patch.target), kept}, {ast.unparse(patch.target.value)}):
        if len(found := [one for one in every if ast.unparse(one) in texts]) == 1:
            return found[0]
    return f"`{ast.unparse(call.func)}` is not given the original"


def _partial(patch: Patch, call: ast.Call, kept: str, files: Workbench) -> Made | str:
    """`partial(wrapped, module.forward, ...)`: what it holds besides the original comes before the module."""
    function = call.args[0] if call.args else None
    name = function.id if isinstance(function, ast.Name) else ""
    wrapped = defined(patch.source.tree, name, None)
    original = _given(patch, call, kept)
    if (
        isinstance(original, str)
        or original not in call.args
        or call.keywords
        or not isinstance(wrapped, ast.FunctionDef)
    ):
        return NOT_BESIDE
    given = parameters(wrapped)[: len(call.args) - 1]
    if len(given) + 1 < len(call.args) or wrapped.args.posonlyargs:
        return NOT_BESIDE
    if sum(is_name(node, name) for node in patch.source.nodes) != 1:
        return f"`{name}` is also used elsewhere"
    if because := used_by_others(name, patch.source, files):
        return because
    rest = [patch.text(one) for one in call.args if one is not original]
    hook = f"{patch.text(call.func)}({', '.join(rest)})" if len(rest) > 1 else name
    return Made(patch.source, wrapped, hook, given[call.args.index(original) - 1], tuple(given))


def _factory(patch: Patch, call: ast.Call, kept: str, files: Workbench) -> Made | str:
    """`make(module.forward, ...)`: a function of the repository that returns one of its own."""
    found, argument = _defined(patch, call.func, files), _given(patch, call, kept)
    if found is None or isinstance(argument, str):
        return NOT_BESIDE
    source, maker = found
    inner = next((one for one in body_of(maker) if isinstance(one, ast.FunctionDef)), maker)
    named = [node for node in ast.walk(maker) if is_name(node, inner.name)]
    own = [node for one in maker.body if one is not inner for node in ast.walk(one)]
    last = maker.body[-1]
    if not isinstance(last, ast.Return) or named != [last.value] or sum(isinstance(one, ast.Return) for one in own) > 1:
        return f"`{maker.name}` does more than to return a function of its own"
    name = _parameter(maker, call, argument)
    if not name or maker.decorator_list or has_comments_in_header(source, maker):
        return f"`{maker.name}` is not called in a plain way"
    whole = patch.finding.shape == "class-attr"
    if ast.unparse(argument) == ast.unparse(patch.target.value):  # it reads the original itself
        match [one for one in own if isinstance(one, ast.Attribute) and ast.unparse(one) == f"{name}.forward"]:
            case [read] if isinstance(keeps := source.parents[read], ast.Assign) and leaf(keeps.targets[0]):
                changes = list(remove(source, [keeps]))
                return Made(source, inner, patch.text(call), leaf(keeps.targets[0]), (), maker, changes, name * whole)
        return f"`{maker.name}` does not keep the original under one name"
    if any(is_name(node, name) for node in own):
        return f"`{maker.name}` uses the original for more than one call"
    if whole and _CLS in identifiers(maker):
        return f"the name `{_CLS}` is taken"
    instead = patch.text(patch.target.value) if whole else ""
    arguments = [instead if one is argument else patch.text(one) for one in call.args]
    arguments += [
        f"{_CLS}={instead}" * whole if one.value is argument else patch.source.text(one) for one in call.keywords
    ]
    hook = f"{patch.text(call.func)}({', '.join(filter(None, arguments))})"
    header = Header(maker, ", ".join(filter(None, _listed(source, maker, name, _CLS * whole))))
    return Made(source, inner, hook, name, (), maker, [header], _CLS * whole)


def _parameter(maker: ast.FunctionDef, call: ast.Call, argument: ast.expr) -> str:
    """The parameter that an argument is bound to; empty where that is not plain."""
    if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
        return ""
    if argument not in call.args:
        return next((one.arg for one in call.keywords if one.value is argument and one.arg), "")
    names, at = [one.arg for one in (*maker.args.posonlyargs, *maker.args.args)], call.args.index(argument)
    return names[at] if at < len(names) and not maker.args.posonlyargs else ""


def _listed(source: Source, maker: ast.FunctionDef, name: str, instead: str) -> Iterator[str]:
    """The parameters of a function, another in the place of one or none."""
    spec = maker.args
    padded = [*[None] * (len(spec.args) - len(spec.defaults)), *spec.defaults]
    for one, value in (
        *zip(spec.args, padded, strict=True),
        (None, None),
        *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
    ):
        if one is None:
            yield f"*{spec.vararg.arg}" if spec.vararg else "*" if spec.kwonlyargs else ""
        else:
            equals = " = " if one.annotation else "="
            text = source.text_of(source.span(one)) + (f"{equals}{source.text(value)}" if value is not None else "")
            yield instead if one.arg == name else text
    yield f"**{spec.kwarg.arg}" if spec.kwarg else ""


def _defined(patch: Patch, func: ast.expr, files: Workbench) -> tuple[Source, ast.FunctionDef] | None:
    """The only function of the repository that a call may be of: one of the file, or imported by name."""
    own = defined(patch.source.tree, leaf(func), patch.around) if isinstance(func, ast.Name) else None
    if isinstance(own, ast.FunctionDef):
        return patch.source, own
    head, _, rest = dotted(func).partition(".")
    module, _, name = ".".join(filter(None, [imported(patch.source).get(head), rest])).rpartition(".")
    ends = tuple(f"/{module.replace('.', '/')}{end}" for end in (".py", "/__init__.py")) if module else ()
    sources = filter(None, (files.readable(path) for path in files.paths if ends and f"/{path}".endswith(ends)))
    match [(one, function) for one in sources if (function := defined(one.tree, name, None))]:
        case [(source, ast.FunctionDef() as function)]:
            return source, function
    return None


def calls_of_factory(made: Made, files: Workbench) -> Iterator[tuple[Source, ast.stmt]]:
    """Every place where the repository uses a factory, with the statement that it stands in."""
    assert made.maker is not None
    name = made.maker.name
    for source in files.sources_saying(as_name(name)):
        if source is not made.source and not _imports(source, name):
            continue
        other = {
            alias.asname or name for node in source.every(ast.ImportFrom) for alias in node.names if alias.name == name
        }
        for node in source.every(ast.Name, ast.Attribute):
            if leaf(node) in {name, *other}:
                yield source, next(one for one in source.above(node) if isinstance(one, ast.stmt))
