"""Members that code adds to what is Megatron's: a property that is another name, methods of a new object."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.changes import Replace, Rewrite, above
from mcore_unpatch.codemods.codemod import Elsewhere, Fix, Left, Needs
from mcore_unpatch.codemods.emptied import references
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.hooks.module import behind
from mcore_unpatch.codemods.syntax import identifiers, imported, leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source, Span
from mcore_unpatch.findings.verdicts import first_after
from mcore_unpatch.library.syntax import dotted
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import RELEASES, Version, show


@dataclass(frozen=True)
class Alias:
    """`setattr(x.__class__, "name", property(getter))`, where the getter gives `means` of the same object."""

    source: Source
    going: Sequence[ast.stmt]
    owner: ast.expr
    name: str
    means: str

    def renamed(self, files: Workbench, target: str, versions: Sequence[Version]) -> Iterator[Fix]:
        """All that read the name read the attribute, and the property goes; or why one has to stay."""
        of = target.rpartition(".")[0]
        for version in versions:
            release = known.newest(version)
            if not known.holds(release, f"{of}.{self.means}") or known.holds(release, target):
                yield Left(f"megatron-core {show(version)} has no `{self.means}` there, or has `{self.name}` itself")
        yield Needs(first_after([one for one in RELEASES if not known.holds(known.model(one), f"{of}.{self.means}")]))
        yield from remove(self.source, self.going, with_comments=True)
        gone = {id(node) for statement in self._with_guard for node in ast.walk(statement)}
        for source in files.sources_naming(self.name):
            at = f"{source.path}:{{}} {{}} `{self.name}`{{}}".format
            for text in source.every(ast.Constant):
                if isinstance(text.value, str) and re.fullmatch(rf"(\S*\W)?{self.name}(\W\S*)?", text.value):
                    yield from [] if id(text) in gone else [Left(at(text.lineno, "asks for", " by name"))]
            for own in (function for function in source.every(ast.FunctionDef) if function.name == self.name):
                yield Left(at(own.lineno, "defines another", ""))
            for node in (one for one in source.every(ast.Attribute) if one.attr == self.name and id(one) not in gone):
                sure = isinstance(node.ctx, ast.Load) and self._is_such(source, node.value, of)
                if not sure or source.path not in files.editable:
                    yield Left(at(node.lineno, "uses", " of what may be another object"))
                change = Replace(node, f"{source.text(node.value)}.{self.means}")
                yield change if source is self.source else Elsewhere(source, change)

    @property
    def _with_guard(self) -> Iterator[ast.stmt]:
        """What goes, and the test whether the name is there already."""
        above = self.source.parents[self.going[-1]]
        whole = isinstance(above, ast.If) and set(self.going) == set(above.body) and not above.orelse
        yield from [above] if whole and isinstance(above, ast.If) else self.going

    def _is_such(self, source: Source, node: ast.expr, of: str) -> bool:
        """Whether an object is of the class: of a subclass, or read from where the one is from that is patched."""
        classes = [cls for cls in source.above(node) if isinstance(cls, ast.ClassDef)]
        if leaf(node) == "self" and classes:
            names, kind = imported(source), of.rpartition(".")[2]
            return any(names.get(dotted(base), "").endswith(f".{kind}") for base in classes[0].bases)
        return _from(source, node) == _from(self.source, self.owner) != []


def find_alias(source: Source, node: ast.AST) -> Alias | None:
    """The alias that a statement makes, if it is one."""
    match node:
        case ast.Expr(ast.Call(ast.Name("setattr"), [owner, ast.Constant(str(name)), value], [])):
            pass
        case ast.Assign([ast.Attribute(owner, name)], value):
            pass
        case _:
            return None
    if not isinstance(value, ast.Call) or leaf(value.func) != "property" or len(value.args) != 1 or value.keywords:
        return None
    get, suite = value.args[0], source.home[id(node)]
    beside = [function for function in suite if isinstance(function, ast.FunctionDef) and function.name == leaf(get)]
    given: ast.Lambda | ast.FunctionDef | None = get if isinstance(get, ast.Lambda) else next(iter(beside), None)
    returned = (
        given.body if isinstance(given, ast.Lambda) else getattr(given.body[-1], "value", None) if given else None
    )
    if given is None or len(given.args.args) != 1 or len(beside) > 1 or (beside and len(beside[0].body) != 1):
        return None
    match returned:
        case ast.Attribute(ast.Name(me), means):
            pass
        case ast.Call(ast.Name("getattr"), [ast.Name(me), ast.Constant(str(means))], []):
            pass
        case _:
            return None
    of = owner.value if isinstance(owner, ast.Attribute) and owner.attr == "__class__" else owner
    return Alias(source, [*beside, node], of, name, means) if me == given.args.args[0].arg else None


def _from(source: Source, node: ast.expr) -> list[str]:
    """The last two names of where a local was read from, such as `mtp.layers`."""
    path = dotted(behind(node, source.function_of(node))).split(".")
    return path[-2:] if len(path) > 2 else []


def made_before(source: Source, statement: ast.Assign) -> ast.Assign | None:
    """`x = Class(...)`, behind which nothing stands before a statement but others that add methods to `x`."""
    suite, holder = source.home[id(statement)], _holder(statement)
    before = suite[: suite.index(statement)]
    while before and _holder(before[-1]) == holder:
        before = before[:-1]
    match before[-1:]:
        case [ast.Assign([target], ast.Call(ast.Name())) as made] if ast.unparse(target) == holder:
            return made
    return None


def to_subclass(files: Workbench, source: Source, made: ast.Assign, added: Mapping[ast.Assign, str]) -> Iterator[Fix]:
    """A class of the file, under the name that the object's was imported as, has the functions that are added."""
    call, top = made.value, source.tree.body
    assert isinstance(call, ast.Call)
    name, first = leaf(call.func), next((node for node in top if isinstance(node, Function | ast.ClassDef)), None)
    imports = [node for node in top if isinstance(node, ast.ImportFrom) and [one.name for one in node.names] == [name]]
    functions, theirs = {leaf(node.targets[0]): text for node, text in added.items()}, f"Megatron{name}"
    if len(imports) != 1 or imports[0].names[0].asname or first is None or imports[0].lineno > first.lineno:
        yield Left(f"`{name}` is not imported by a statement of its own before all functions")
        return
    if len(functions) != len(added) or not {*functions.values()} <= {getattr(node, "name", None) for node in top}:
        yield Left("not all of the methods are functions of this file")
    if theirs in identifiers(source.tree):
        yield Left(f"the name `{theirs}` is taken")
    for other, use in references(files, source, imports[0].names[0]):
        known = use in (imports[0], call.func) or _is_annotation(other, use)
        if (isinstance(use, ast.ImportFrom) or other is source) and not known:
            yield Left(f"{other.path}:{use.lineno} uses `{name}` too")
    by_name = f"{imports[0].module}.{name}"
    for path in files.saying(re.compile(rb"""["']%b["']""" % re.escape(by_name.encode()))):
        yield Left(f"{path} knows the class as `{by_name}`, which a subclass is not")
    said = f'class {name}({theirs}):\n    """Megatron\'s own, with methods of this file."""'
    for method, function in functions.items():
        said += f"\n\n    def {method}(self, *args, **kwargs):\n        return {function}(self, *args, **kwargs)"
    whole, end = source.span(imports[0]), source.span(imports[0].names[0]).end
    parts = Span(whole.start, end), Span(end, whole.end)
    yield Rewrite(imports[0], f" as {theirs}".join(map(source.text_of, parts)))
    yield above(source, first, f"{said}\n\n")
    yield from remove(source, added)


def _holder(node: ast.stmt) -> str:
    """`x` of `x.name = ...`."""
    target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    return ast.unparse(target.value) if isinstance(target, ast.Attribute) else ""


def _is_annotation(source: Source, node: ast.AST) -> bool:
    """Whether a name stands in what says the type of something."""
    for above_it in source.above(node):
        said = getattr(above_it, "annotation", None) or getattr(above_it, "returns", None)
        if said is not None and any(part is node for part in ast.walk(said)):
            return True
    return False
