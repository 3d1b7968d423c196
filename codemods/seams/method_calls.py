"""Calls of a method that code adds to Megatron's objects, as calls of a function with the object."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Change, Replace
from mcore_unpatch.codemods.codemod import AddImport, Elsewhere, Fix, Left, Match
from mcore_unpatch.codemods.seams.family import derived
from mcore_unpatch.codemods.syntax import bound_in, leaf, names_in
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source, Span
from mcore_unpatch.megatron import known
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.sources.nodes import walk

_MOST = 50  # files that may run when another is imported; beyond that nobody knows
_SCOPES = Function | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class MethodCalls:
    """The calls in all files of methods that some statements add to objects; the functions stand in `source`."""

    match: Match
    source: Source
    adding: Collection[ast.AST]
    classes: Collection[str]  # the names of those that the objects are of
    is_called: Callable[[str], bool]  # whether such an object has a name
    bodies: Collection[Function | None] = ()  # the functions, which call the object `self`
    gone: Collection[ast.stmt] = ()  # what goes of the functions' file

    def replaced(self, method: str, function: str, given: Function | None = None) -> Iterator[Fix]:
        """Every call of a method as one of the function, which is new unless it is `given`; or why one cannot be."""
        elsewhere = list(self._defined(method, given))
        yield from map(Left, self._in_the_way(method, function, given, elsewhere))
        calls = 0
        for source in self.files.sources_naming(method):
            module = self._module(source, given)
            knows = source is self.source or bool(module)
            yield from map(Left, self._asked_by_name(source, method, bool(elsewhere)))
            made: list[Change] = []
            for node in source.every(ast.Attribute):
                call, told = source.parents[node], f"{source.path}:{node.lineno}"
                if node.attr != method or call in self.adding:
                    continue
                mine = self._is_such(source, node.value)
                if mine and not knows:
                    where = f"imports nothing from {self.source.path}: import `{function}` there first, if that is safe"
                    yield Left(f"{told} calls `{method}` and {where}")
                elif mine and isinstance(call, ast.Call) and call.func is node:
                    yield from (Left(f"{told} {why}") for why in _not_moved(source, call, method, function))
                    made.append(Replace(call, _with_object(source, call, function)))
                elif mine or (not _is_own(source, node) if knows else not elsewhere and self._leads(source)):
                    yield Left(f"{told} uses `{method}` of what may be the same object")
            if made and source is not self.source and not self._has(source, function):
                if not is_free(source, function) or source.path not in self.files.editable:
                    yield Left(f"{source.path} has another `{function}`, or is not part of this migration")
                yield Elsewhere(source, AddImport(module, function))
            yield from (Elsewhere(source, change) for change in made)
            calls += len(made)
        if not calls:
            yield Left(f"nothing in this repository calls `{method}`: other code may")

    @property
    def files(self) -> Workbench:
        """The files of the plan."""
        return self.match.situation.files

    def _defined(self, method: str, given: Function | None) -> Iterator[tuple[Source, str]]:
        """Where else a method of the name is defined: the file, and the name of the class around it."""
        for source in self.files.sources_naming(method):
            for node in source.every(ast.FunctionDef, ast.AsyncFunctionDef):
                if getattr(node, "name", "") == method and node is not given:
                    classes = (above.name for above in source.above(node) if isinstance(above, ast.ClassDef))
                    yield source, next(classes, "")

    def _in_the_way(
        self, method: str, function: str, given: Function | None, elsewhere: Collection[tuple[Source, str]]
    ) -> Iterator[str]:
        """What else a method, or the name of the function, may mean."""
        for version in self.match.situation.options.judged(self.match.situation.finding.path):
            if others := known.newest(version).ending(method):
                yield f"Megatron has a `{method}` of its own: `{others[0]}`"
        if given is None and function == method and not is_free(self.source, function):
            yield f"the name `{function}` is taken"
        if given is None:  # one that asks for the class may stand beside others
            alike = [source.path for source, _ in elsewhere if function != method]
        else:
            alike = [source.path for source, cls in elsewhere if self.is_called(cls) or is_test(source.path)]
            heirs = derived({*self.classes}, self.files)
            alike += [source.path for source, cls in heirs if method in bound_in(walk(cls))]
        if alike:
            yield f"{alike[0]} defines another `{method}`"

    def _asked_by_name(self, source: Source, method: str, elsewhere: bool) -> Iterator[str]:
        """Texts that are the name of the method; one that is defined elsewhere too may be asked for by it."""
        for text in (node for node in source.every(ast.Constant) if node.value == method):
            around, call = [*source.above(text)], source.parents[text]
            statement = next(node for node in around if isinstance(node, ast.stmt))
            guards = isinstance(statement, ast.If) and {*statement.body} <= {*self.adding}
            exports = isinstance(statement, ast.Assign) and leaf(statement.targets[0]) == "__all__"
            of = call.args[0] if isinstance(call, ast.Call) and call.args else None
            if statement not in self.adding and not guards and not exports and not isinstance(call, ast.Expr):
                if not elsewhere or (of is not None and self._is_such(source, of)):
                    yield f"{source.path}:{text.lineno} asks for `{method}` by name"
        for asked in source.every(ast.Call):
            named = asked.args[1] if leaf(asked.func) in {"getattr", "hasattr"} and len(asked.args) > 1 else None
            if named is not None and not isinstance(named, ast.Constant) and self._is_such(source, asked.args[0]):
                yield f"{source.path}:{asked.lineno} asks for a name that may be `{method}`"

    def _is_such(self, source: Source, node: ast.expr) -> bool:
        """Whether an object is of the classes, as far as code says so, or is called what one of them is."""
        name = name_of(node)
        if name == "self":
            bases = {leaf(base) for cls in source.above(node) if isinstance(cls, ast.ClassDef) for base in cls.bases}
            return source.function_of(node) in self.bodies or bool(bases & {*self.classes})
        if said := list(_said_of(source, node)):
            return all({*self.classes} & {*re.findall(r"\w+", one)} for one in said)
        loops = (one for one in source.above(node) if isinstance(one, ast.For | ast.ListComp | ast.GeneratorExp))
        rounds = (one for loop in loops for one in getattr(loop, "generators", [loop]))
        over = [name_of(one.iter) for one in rounds if isinstance(node, ast.Name) and name_of(one.target) == name]
        return not name[:1].isupper() and any(map(self.is_called, [name, *over]))

    def _has(self, source: Source, function: str) -> bool:
        """Whether a file imports the function already."""
        names = (alias for node in self._imports(source) for alias in node.names)
        return any(alias.name == function and not alias.asname for alias in names)

    def _imports(self, source: Source) -> Iterator[ast.ImportFrom]:
        """The statements with which a file imports from that of the functions."""
        for node in source.tree.body:
            if isinstance(node, ast.ImportFrom):
                if self.files.locate(source.path, node.module or "", node.level) == self.source.path:
                    yield node

    def _leads(self, source: Source) -> bool:
        """Whether a file has to do with Megatron, or with the files of the functions and of what adds them."""
        ours = {self.source.path, self.match.situation.finding.path}
        return b"megatron" in source.data.lower() or bool(_imported(self.files, source) & ours)

    def _module(self, source: Source, given: Function | None) -> str:
        """The module that a file imports the functions from, or may: one that speaks of Megatron, without a cycle."""
        if module := next((node.module or "" for node in self._imports(source) if not node.level), ""):
            return module
        files, home = self.files, self.source.path
        does = (node.value for node in self.source.tree.body if isinstance(node, ast.Expr) and node not in self.gone)
        is_script = b"__main__" in self.source.data or not all(isinstance(value, ast.Constant) for value in does)
        if given is None or not self._leads(source) or is_script:
            return ""
        folders = home.removesuffix("/__init__.py").removesuffix(".py").split("/")
        first = len(folders) - 1
        while first and files.exists(f"{'/'.join(folders[:first])}/__init__.py"):
            first -= 1
        module = ".".join(folders[first:])
        in_package = "." in module or not first
        fits = in_package and files.locate(source.path, module, 0) == home
        return module if fits and not _leads_to(files, home, source.path) else ""


def _leads_to(files: Workbench, start: str, goal: str) -> bool:
    """Whether an import of one file, with its packages, may run another; those of the other run before it."""
    folders = [start[:index] for index, sign in enumerate(start) if sign == "/"]
    packages = (f"{folder}/__init__.py" for folder in folders if not goal.startswith(f"{folder}/"))
    seen, waiting = set[str](), [start, *filter(files.exists, packages)]
    while waiting and goal not in seen and len(seen) < _MOST:
        if (path := waiting.pop()) not in seen:
            seen.add(path)
            source = files.readable(path)
            waiting += _imported(files, source) if source else []
    return goal in seen or bool(waiting)


def _imported(files: Workbench, source: Source) -> set[str]:
    """The files of this repository that a file imports, wherever it does."""
    asked = [(alias.name, 0) for node in source.every(ast.Import) for alias in node.names]
    for one in source.every(ast.ImportFrom):
        asked.append((one.module or "", one.level))
        asked += [(f"{one.module or ''}.{alias.name}".lstrip("."), one.level) for alias in one.names]
    return {path for module, level in asked if (path := files.locate(source.path, module, level))}


def name_of(node: ast.expr) -> str:
    """The last part of a name, or of what an element is taken from."""
    return leaf(node.value) if isinstance(node, ast.Subscript) else leaf(node)


def _said_of(source: Source, node: ast.expr) -> Iterator[str]:
    """The types that code gives what is written as an expression is, and the classes of which it makes it."""
    written, function = ast.unparse(node), source.function_of(node)
    own = [one for one in walk(function.args) if isinstance(one, ast.arg)] if function is not None else []
    for said in [one.annotation for one in own if one.arg == written] + [
        one.annotation for one in source.every(ast.AnnAssign) if ast.unparse(one.target) == written
    ]:
        if said is not None:
            yield str(said.value) if isinstance(said, ast.Constant) else ast.unparse(said)
    for made in source.every(ast.Assign):
        if isinstance(made.value, ast.Call) and leaf(made.value.func)[:1].isupper():
            yield from (leaf(made.value.func) for target in made.targets if ast.unparse(target) == written)


def _is_own(source: Source, node: ast.Attribute) -> bool:
    """`self.name` in a class that defines it."""
    classes = (cls for cls in source.above(node) if isinstance(cls, ast.ClassDef))
    defined = {item.name for around in classes for item in around.body if isinstance(item, Function)}
    return leaf(node.value) == "self" and node.attr in defined


def is_free(source: Source, name: str) -> bool:
    """Whether a file means nothing else by a name; methods have theirs in their class."""
    own = {node for cls in source.every(ast.ClassDef) for node in cls.body if isinstance(node, Function)}
    return name not in {*names_in(source.tree), *bound_in(node for node in source.nodes if node not in own)}


def _not_moved(source: Source, call: ast.Call, method: str, function: str) -> Iterator[str]:
    """Why a call cannot be one of the function."""
    around = [*source.above(call)]
    inside = [node for node in walk(call) if isinstance(node, ast.expr) and node is not call.func]
    asked = [handler.type for node in around if isinstance(node, ast.Try) for handler in node.handlers]
    asked += [item.context_expr for node in around if isinstance(node, ast.With) for item in node.items]
    if "AttributeError" in {name for node in asked if node is not None for name in names_in(node)}:
        yield f"expects that an object may have no `{method}`"
    scopes = [node for node in around if isinstance(node, _SCOPES)]
    hidden = function.startswith("__") and any(isinstance(node, ast.ClassDef) for node in around)  # it is mangled
    if hidden or any(function in bound_in(node for node in walk(scope) if node is not scope) for scope in scopes):
        yield f"calls `{method}` where `{function}` is another name"
    text, called = source.text(call), source.text(call.func)
    last = source.span(call.args[-1]).end if call.args else 0  # behind the brackets, of a generator without its own
    if (
        not (text.startswith(called) and text[len(called) :].startswith("("))
        or last == source.span(call).end
        or any(isinstance(node, ast.JoinedStr) for node in around)
        or any(isinstance(node, ast.Constant) and "\n" in source.text(node) for node in inside)
        or any(isinstance(node, ast.Attribute) and node.attr == method for node in inside)
    ):
        yield f"calls `{method}` in a form that is not rewritten"


def _with_object(source: Source, call: ast.Call, function: str) -> str:
    """`function(x, ...)` for `x.method(...)`, laid out as it is."""
    assert isinstance(call.func, ast.Attribute)
    statement = next(node for node in source.above(call) if isinstance(node, ast.stmt))
    rest = source.text(call)[len(source.text(call.func)) :].removeprefix("(")
    # What is inside brackets is indented with the statement.
    rest = rest.replace(f"\n{source.indentation(statement)}", "\n")
    space = rest[: len(rest) - len(rest.lstrip())]
    given: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    last = max((source.span(node).end for node in given), default=0)
    closed = source.text_of(Span(last, source.span(call).end)).lstrip().startswith(",")
    apart = space if "\n" in space and (closed or len({node.lineno for node in given}) > 1) else " "
    return f"{function}({space}{source.text(call.func.value)}{f',{apart}' if given else ''}{rest.lstrip()}"
