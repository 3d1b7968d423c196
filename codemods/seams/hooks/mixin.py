"""A module that gets another class for its `forward`, which calls that of its own class once: a hook as well.

`extend_instance(module, Mixin)` and the like set `module.__class__` to a class with the mixin before the module's own.
The mixin's `forward` is written as a function of the hook beside the class.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from mcore_unpatch.codemods.changes import Change, Rewrite, below
from mcore_unpatch.codemods.codemod import AlsoImport, Elsewhere
from mcore_unpatch.codemods.imported import imported
from mcore_unpatch.codemods.seams.hooks.direct import Reached, why_not
from mcore_unpatch.codemods.seams.hooks.form import Calling, Form, Hooked, Wrapper
from mcore_unpatch.codemods.seams.hooks.method import as_function, has_a_footer, is_supers, made, snake, with_docstring
from mcore_unpatch.codemods.seams.hooks.module import is_module
from mcore_unpatch.codemods.seams.patch import Rewritten
from mcore_unpatch.codemods.seams.said import CommentCollector
from mcore_unpatch.codemods.seams.undo import FORWARD
from mcore_unpatch.codemods.source import Source, first_line
from mcore_unpatch.codemods.syntax import body_of, bound_by_import, dotted, identifiers, is_stored, leaf, walk_without
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.repository.paths import is_test

if TYPE_CHECKING:
    from mcore_unpatch.codemods.answering import Situation

CLASS = "__class__"
_NOT_READ = "`{}` changes the class of the module in an unsupported way"
_AGAIN = "the module has its own class again: what asks for its type sees that"
# The class of a layer that the scanner knows by its name in the model.
_CLASS_OF = {"output_layer": "ColumnParallelLinear"}


class _MixinDefinition(NamedTuple):
    """A function or class of the repository, and its file."""

    source: Source
    node: ast.stmt


@dataclass(frozen=True)
class MixedIn(Hooked):
    """The place where a module gets another class."""

    module: ast.expr
    mixin: ast.expr
    hook: _Hook

    def rewritten(self) -> Rewritten:
        """The hook on the module, and the function where the class is."""
        name = ".".join([*dotted(self.mixin).split(".")[:-1], self.hook.name])
        call = f"{self.source.text(self.module)}.{self.form.registered(name)}"
        said = CommentCollector(self.source)
        said.inside(self.statement)
        changes: list[Change] = [Rewrite(self.statement, "\n".join([*said.lines(), call]), tell_checkers=False)]
        imports = [AlsoImport(node, self.hook.name) for node in self._imports()]
        elsewhere = [Elsewhere(self.hook.home.source, self.hook.change)]
        return Rewritten(changes, (), (*self.form.notes, _AGAIN), self.hook.by_hand, elsewhere, imports=imports)

    def _imports(self) -> Iterator[ast.ImportFrom]:
        for node in self.source.every(ast.ImportFrom) if isinstance(self.mixin, ast.Name) else ():
            if any(bound_by_import(alias, node) == self.mixin.id for alias in node.names):  # type: ignore[attr-defined]
                yield node


@dataclass(frozen=True)
class _Hook:
    """A mixin's `forward` as a function."""

    home: _MixinDefinition
    name: str
    form: Form
    change: Change  # what puts it there; one and the same for all that ask for it
    by_hand: str = ""


class Mixins:
    """The mixins of a repository, each read once."""

    def __init__(self, files: Workbench, reached: Reached) -> None:
        self.files, self.reached = files, reached
        self._hooks: dict[tuple[str, int], _Hook | str] = {}

    def read(self, situation: Situation) -> MixedIn | str:
        """A place as a hook, or why it is none."""
        finding = situation.finding
        source = self.files.readable(finding.path)
        node = source.starting.get((finding.line, finding.column - 1)) if source else None
        if source is None or node is None:
            return _NOT_READ.format(finding.path)
        statement = node if isinstance(node, ast.stmt) else source.parents[node]
        if not isinstance(statement, ast.stmt) or not source.owns_lines(statement):
            return f"line {finding.line} does more than change the class"
        parts = self._parts(source, statement)
        if isinstance(parts, str):
            return parts
        module, mixin, mixed = parts
        around = source.function_of(statement)
        if not is_module(module, around, finding):
            return f"`{source.text(module)}` is not known to be a module"
        if because := why_not(module, around, source.path, self.reached):
            return because
        home = self._definition(source, mixin)
        if home is None or not isinstance(home.node, ast.ClassDef):
            return f"`{source.text(mixin)}` is not a class of this repository"
        key = home.source.path, home.node.lineno
        if key not in self._hooks:
            self._hooks[key] = self._read(situation, home, home.node)
        hook = self._hooks[key]
        if isinstance(hook, str):
            return hook
        owner = finding.target.split(".")[-2]
        if because := _other_base(home.source, home.node, _CLASS_OF.get(owner, owner), mixed):
            return because
        if home.source is not source and hook.name in identifiers(source.tree):
            return f"the name `{hook.name}` is taken"
        return MixedIn(source, statement, around, hook.form, module, mixin, hook)

    def _parts(self, source: Source, statement: ast.stmt) -> tuple[ast.expr, ast.expr, bool] | str:
        """The module, the class, and whether that comes before the module's own or takes its place."""
        match statement:
            case ast.Expr(value=ast.Call(args=[module, mixin], keywords=[]) as call):
                helper = self._definition(source, call.func)
                if helper is None or not isinstance(helper.node, ast.FunctionDef) or not _mixes_in(helper.node):
                    return _NOT_READ.format(source.text(call.func))
                return module, mixin, True
            case ast.Assign(targets=[ast.Attribute(value=module, attr="__class__")], value=value):
                own = _names_of_class(ast.unparse(module), source.function_of(statement) or source.tree)
                mixed_in = _before_own(value, own)
                return (module, value, False) if mixed_in is None else (module, mixed_in, True)
        return f"line {statement.lineno} changes the class in an unsupported way"

    def _definition(self, source: Source, node: ast.expr) -> _MixinDefinition | None:
        """Where a name of a file is defined, in it or in another that it is imported from."""
        name = leaf(node)
        if any(is_stored(one, name) for one in source.nodes):
            return None
        for one in source.every(ast.ImportFrom) if isinstance(node, ast.Name) else ():
            for alias in one.names:
                if bound_by_import(alias, one) == name:
                    path = self.files.locate(source.path, one.module or "", one.level)
                    there = self.files.readable(path) if path else None
                    return _defined_in(there, alias.name) if there else None
        return _defined_in(source, name) if isinstance(node, ast.Name) else None

    def _read(self, situation: Situation, home: _MixinDefinition, node: ast.ClassDef) -> _Hook | str:
        """The hook that a class is."""
        source = home.source
        method = body_of_class(node)
        if method is None or node.decorator_list or node.keywords:
            return f"`{node.name}` has more than a `{FORWARD}`"
        if source.path not in self.files.editable:
            return f"`{node.name}` is defined in {source.path}, which is not part of this migration"
        uses = [use for one in self.files.sources_saying(node.name) for use in _uses(one, node)]
        for use in uses:
            if use.asks and not is_test(use.path):
                return f"{use.path}:{use.line} asks for `{node.name}`"
        name = snake(node.name)
        if name in identifiers(source.tree):
            return f"the name `{name}` is taken"
        places = [one for one in situation.staying.findings if one.target.endswith(f".{CLASS}")]
        here = [use for use in uses if use.path == source.path and any(use.line == one.line for one in places)]
        goes = len(uses) == len(here) == 1 and not self.files.named_elsewhere(node.name, source.path)
        goes &= not has_a_footer(source, node)
        text = as_function(source, method, name)
        if text is not None and goes and not ast.get_docstring(method):
            text = with_docstring(text, source, node)
        if text is None:
            return f"`{node.name}.{FORWARD}` contains names or strings that cannot move out of the class"
        snippet = Source(source.path, text.encode())
        function = snippet.tree.body[0]
        assert isinstance(function, ast.FunctionDef)
        calls = [one.func for one in ast.walk(function) if isinstance(one, ast.Call) and is_supers(one.func)]
        form = Wrapper(snippet, function, Calling("", ast.unparse(calls[0]) if calls else "super()", bound=True)).read()
        if isinstance(form, str):
            return form
        text_of = cache(partial(made, snippet, form))
        if goes:
            said = CommentCollector(source)
            said.between(first_line(node), method.lineno - 1)
            docs = (ast.get_docstring(node) or "").splitlines() if ast.get_docstring(method) else []
            comments = [*(f"# {line}".rstrip() for line in docs), *said.lines()]
            return _Hook(home, name, form, Rewrite(node, lambda: "\n".join([*comments, text_of()])))
        by_hand = f"`{node.name}` ({source.path}:{node.lineno}) stays; delete it where nothing else needs it."
        tests = ", ".join(dict.fromkeys(f"{use.path}:{use.line}" for use in uses if is_test(use.path)))
        by_hand += f" Tests that name it: {tests}." if tests else ""
        return _Hook(home, name, form, below(node, lambda: f"\n\n{text_of()}"), by_hand)


class _MixinUse(NamedTuple):
    """A mention of a class by code; `asks` where that is not to give it to a module."""

    path: str
    line: int
    asks: bool


def _uses(source: Source, node: ast.ClassDef) -> Iterator[_MixinUse]:
    name = node.name
    for one in walk_without(source.tree, [node]):
        if leaf(one) == name:
            yield _MixinUse(source.path, one.lineno, not _is_given(source, one))  # type: ignore[attr-defined]
        elif (isinstance(one, ast.Constant) and one.value == name) or (isinstance(one, ast.alias) and one.name == name):
            yield _MixinUse(source.path, one.lineno, asks=False)


def _is_given(source: Source, node: ast.AST) -> bool:
    """Whether a class is what a helper, `type(..., (it, ...), {})` or `x.__class__ =` is given."""
    above = source.parents[node]
    if isinstance(above, ast.Tuple):
        node, above = above, source.parents[above]
        return isinstance(above, ast.Call) and leaf(above.func) == "type"
    if isinstance(above, ast.Assign):
        return all(isinstance(one, ast.Attribute) and one.attr == CLASS for one in above.targets)
    helps = isinstance(above, ast.Call) and len(above.args) > 1 and above.args[1] is node
    return helps and leaf(above.func) not in _ASKING and isinstance(source.parents[above], ast.Expr)  # type: ignore[attr-defined]


_ASKING = {"isinstance", "issubclass"}


def body_of_class(node: ast.ClassDef) -> ast.FunctionDef | None:
    """The `forward` of a class that has nothing else."""
    body = node.body[ast.get_docstring(node, clean=False) is not None :]
    one = body[0] if len(body) == 1 else None
    return one if isinstance(one, ast.FunctionDef) and one.name == FORWARD and one.args.args else None


def _names_of_class(module: str, scope: ast.AST) -> set[str]:
    """How code says the class of a module: `x.__class__`, `type(x)`, and locals that hold it and nothing else."""
    own = {f"{module}.{CLASS}", f"type({module})"}
    made = [one for one in ast.walk(scope) if isinstance(one, ast.Assign) and ast.unparse(one.value) in own]
    names = {target.id for one in made for target in one.targets if isinstance(target, ast.Name)}
    return own | {name for name in names if sum(is_stored(node, name) for node in ast.walk(scope)) == 1}


def _mixes_in(helper: ast.FunctionDef) -> bool:
    """Whether a function does no more than to set the class of its first argument, the second before its own."""
    if helper.decorator_list:
        return False
    match helper.args:
        case ast.arguments(args=[ast.arg(arg=module), ast.arg(arg=mixin)], vararg=None, kwarg=None, kwonlyargs=[]):
            pass
        case _:
            return False
    own = _names_of_class(module, helper)
    *before, last = body_of(helper)
    if isinstance(last, ast.Return) and before and ast.unparse(last) == f"return {module}":
        *before, last = before
    for one in before:
        match one:
            case ast.Assign([ast.Name()], value) if ast.unparse(value) in own:
                pass
            case ast.Assign([ast.Name()], ast.Attribute(attr="__name__")):
                pass
            case _:
                return False
    match last:
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=name), attr="__class__")], value=value):
            given = _before_own(value, own)
            return name == module and given is not None and ast.unparse(given) == mixin
    return False


def _before_own(value: ast.expr, own: Iterable[str]) -> ast.expr | None:
    """The mixin of `type(name, (mixin, own), {})`."""
    match value:
        case ast.Call(
            func=ast.Name(id="type"), args=[_, ast.Tuple(elts=[mixin, base]), ast.Dict(keys=[])], keywords=[]
        ):
            return mixin if ast.unparse(base) in own else None
    return None


def _other_base(source: Source, node: ast.ClassDef, own: str, mixed: bool) -> str:
    """Why the class brings more than its `forward`: a base that the module's own class may not have."""
    known = imported(source)
    for base in node.bases:
        head, _, rest = dotted(base).partition(".")
        name = ".".join(filter(None, (known.get(head, head), rest)))
        of_megatron = name.startswith("megatron.core.") and leaf(base) == own
        if not of_megatron and not (mixed and name in {"torch.nn.Module", "object"}):
            return f"`{node.name}` derives from `{source.text(base)}`, which may change more than `{FORWARD}`"
    return "" if node.bases or mixed else f"`{node.name}` does not derive from the module's class"


def _defined_in(source: Source, name: str) -> _MixinDefinition | None:
    found = [node for node in source.tree.body if getattr(node, "name", "") == name]
    return _MixinDefinition(source, found[0]) if len(found) == 1 else None
