"""Methods that code adds to classes of Megatron: callers call the functions, with the object."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from mcore_unpatch.codemods.changes import Rewrite, above
from mcore_unpatch.codemods.codemod import AddImport, DropImport, Elsewhere, Fix, Left, Match, Note, Settles
from mcore_unpatch.codemods.emptied import Emptied, with_emptied
from mcore_unpatch.codemods.removal import remove
from mcore_unpatch.codemods.seams.method_calls import MethodCalls
from mcore_unpatch.codemods.syntax import leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import Finding
from mcore_unpatch.megatron import known

_FORM = "only plain functions that a statement of its own adds to a class are rewritten"
_BY_NAME = "objects of the class are known by what they are called and annotated as: look at each call"


def added_to_class(node: ast.AST) -> tuple[ast.expr, str, str] | None:
    """The class, the method and the function of `Class.method = function` or `setattr(Class, "method", function)`."""
    match node:
        case ast.Assign([ast.Attribute(owner, method)], ast.Name(function)):
            return owner, method, function
        case ast.Expr(ast.Call(ast.Name("setattr"), [owner, ast.Constant(str(method)), ast.Name(function)], [])):
            return owner, method, function
    return None


@dataclass(frozen=True)
class ClassMethods:
    """The statements of one block that add methods to classes: all of them go, or none."""

    match: Match
    source: Source

    def as_functions(self) -> Iterator[Fix]:
        """Callers call the functions; one that asks for the class comes where classes have functions of their own."""
        if not isinstance(self._block, ast.Module | Function) or None in self._homes.values():
            yield Left(_FORM)
            return
        for finding in self.findings.values():
            if finding.temporary or finding.live.guards:
                yield Left(f"line {finding.line} is not done for good, or on a condition")
        emptied = with_emptied(self.files, {self.source: self.findings})
        if emptied.why_not:
            yield Left(emptied.why_not)
        installs = isinstance(self._block, Function) and self._block in emptied.statements[self.source]
        others = (node for nodes in emptied.statements.values() for node in nodes if node not in self.findings)
        if installs and not any(isinstance(node, ast.Expr) for node in others):
            yield Left("nothing in this repository calls the function that adds it: other code may")
        chosen, calls = list[str](), list[Fix]()
        for method in dict.fromkeys(self._added[node][1] for node in self.findings):
            nodes = [node for node in self.findings if self._added[node][1] == method]
            functions = {self._added[node][2] for node in nodes}
            if len(functions) == 1:
                home, given = self._homes[nodes[0]]  # type: ignore[misc]
                calls += self._calls(home, emptied).replaced(method, given.name, given)
            else:
                chosen.append(self._chosen_by_class(method, nodes))
                calls += self._calls(self.source, emptied).replaced(method, method)
        yield from calls
        text, written = "\n\n\n".join(chosen), set[ast.stmt]()
        if chosen and isinstance(self._block, Function):
            yield above(self.source, self._block, f"{text}\n\n")
        elif chosen:
            first = next(iter(self.findings))
            written = {first}
            empty = sum(self.source.is_blank(first.lineno - number) for number in (1, 2))
            yield Rewrite(first, "\n" * (2 - empty) + text)
        yield from without(emptied, self.source, calls, written)
        yield Settles(tuple(self.findings.values()))
        yield Note(_BY_NAME)

    @property
    def files(self) -> Workbench:
        """The files of the plan."""
        return self.match.situation.files

    @property
    def _block(self) -> ast.AST:
        """What holds the statements, on a condition or not: an object without the method raised where it was called."""
        return next(above for above in self.source.above(self.match.node) if not isinstance(above, ast.If))

    @cached_property
    def findings(self) -> dict[ast.stmt, Finding]:
        """The statements of the block, each with its finding."""
        alike = [one for one in self.match.situation.open if one.path == self.source.path]
        at = {(one.line, one.column - 1): one for one in alike if one.rule == self.match.rule}
        suite = self.source.home[id(self.match.node)]
        beside = {node: at.get((node.lineno, node.col_offset)) for node in suite if added_to_class(node)}
        return {node: finding for node, finding in beside.items() if finding is not None}

    @cached_property
    def _added(self) -> dict[ast.stmt, tuple[ast.expr, str, str]]:
        return {node: added for node in self.findings if (added := added_to_class(node))}

    @cached_property
    def _homes(self) -> dict[ast.stmt, tuple[Source, Function] | None]:
        """Where the functions are defined: in this file, or in one that it imports them from."""
        return {node: self._home(function) for node, (_, _, function) in self._added.items()}

    def _home(self, name: str) -> tuple[Source, Function] | None:
        source: Source | None = self.source
        for node in self.source.tree.body:
            if isinstance(node, ast.ImportFrom) and any(one.name == name and not one.asname for one in node.names):
                path = self.files.locate(self.source.path, node.module or "", node.level)
                source = self.files.readable(path) if path else None
        defined = [node for node in source.tree.body if getattr(node, "name", "") == name] if source else []
        if source is None or len(defined) != 1 or not isinstance(defined[0], Function) or defined[0].decorator_list:
            return None
        return (source, defined[0]) if defined[0].args.posonlyargs or defined[0].args.args else None

    def _calls(self, home: Source, emptied: Emptied) -> MethodCalls:
        bodies = [home[1] for home in self._homes.values() if home is not None]
        gone = emptied.statements[home]
        return MethodCalls(self.match, home, self.findings, self._classes, self._is_called, bodies, gone)

    @cached_property
    def _classes(self) -> set[str]:
        return family(self.match, self.findings.values())

    def _is_called(self, name: str) -> bool:
        """`optimizer`, `actor_optimizer` and `optimizers` for a `DistributedOptimizer`."""
        return _last_word(name).removesuffix("s") in map(_last_word, self._classes)

    def _chosen_by_class(self, method: str, nodes: list[ast.stmt]) -> str:
        """The text of a function that chooses by the class, the derived before what they derive from."""
        model = known.newest(self.match.situation.options.judged(self.source.path)[-1])
        depth = {node: len(model.lineage(self.findings[node].target.rpartition(".")[0])) for node in nodes}
        given = _last_word(leaf(self._added[nodes[0]][0]))
        lines = [f"def {method}({given}, *args, **kwargs):"]
        for node in sorted(nodes, key=lambda one: -depth[one]):
            cls, _, function = self._added[node]
            lines.append(f"    if isinstance({given}, {ast.unparse(cls)}):")
            lines.append(f"        return {function}({given}, *args, **kwargs)")
        return "\n".join([*lines, f'    raise TypeError(f"{method} does not know {{type({given}).__name__}}")'])


def family(match: Match, findings: Iterable[Finding]) -> set[str]:
    """The names of the classes that methods are added to, and of Megatron's that they derive from."""
    model = known.newest(match.situation.options.judged(match.situation.finding.path)[-1])
    owners = (finding.target.rpartition(".")[0] for finding in findings)
    lineages = (model.lineage(found.name if (found := model.find(owner)) else owner) for owner in owners)
    names = {name for lineage in lineages for name in lineage if name.startswith("megatron.")}
    return {name.rpartition(".")[2] for name in names} - {"MegatronModule"}


def without(
    emptied: Emptied, source: Source, calls: Iterable[Fix], written: Collection[ast.stmt] = ()
) -> Iterator[Fix]:
    """What goes in all files, but for what is written anew; where a name comes, it may come to an import that goes."""
    growing = {fix.source for fix in calls if isinstance(fix, Elsewhere) and isinstance(fix.change, AddImport)}
    for where in emptied.statements:
        going = [node for node in emptied.outermost(where) if node not in written]
        imports = [node for node in going if isinstance(node, ast.ImportFrom)] if where in growing else []
        yield from (DropImport(where, node, alias.name) for node in imports for alias in node.names)
        changes = remove(where, [node for node in going if node not in imports], with_comments=where is not source)
        yield from changes if where is source else (Elsewhere(where, change) for change in changes)
    yield from (DropImport(where, node, name) for where, node, name in emptied.imports)


def _last_word(name: str) -> str:
    """`optimizer` of `DistributedOptimizer` and of `actor_optimizer`."""
    return next(iter(re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)[::-1]), "").lower()
