"""The one walk over the statements of a module: its scopes, its names, and the places that may install a patch.

Expressions are looked into only on the lines where the file's text says that a call such as `setattr` or a `:=` can be
found.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from mcore_unpatch.scanner.sources.nodes import calls_and_names_on, calls_on, walk
from mcore_unpatch.scanner.sources.scopes import Binding, Block, FunctionNode, ModuleModel, Scope, Site, path_text


def build(path: str, data: bytes, tree: ast.Module, call_lines: Sequence[int]) -> ModuleModel:
    """Walk a parsed module once; calls are collected on the given lines only."""
    block = Block(None)
    model = ModuleModel(path, data, tree, Scope("module", tree, None, block))
    _Walker(model, call_lines).body(tree.body, model.scope, block)
    for scope in (model.scope, *model.functions.values(), *model.classes.values()):
        for bindings in scope.bindings.values():
            bindings.sort(key=attrgetter("line"))
    return model


class _Walker:
    def __init__(self, model: ModuleModel, call_lines: Sequence[int]) -> None:
        self.model, self.call_lines = model, call_lines

    def body(self, statements: list[ast.stmt], scope: Scope, block: Block) -> None:
        if statements:
            self.model.blocks.append((statements, block, scope))
        for node in statements:
            _HANDLERS.get(type(node), _Walker.expressions)(self, node, scope, block)

    # --- names -------------------------------------------------------------------------------------------------

    def bind(self, scope: Scope, name: str, binding: Binding) -> None:
        home = self.model.scope if name in scope.globals else scope
        home.bindings.setdefault(name, []).append(binding)

    def bind_target(self, target: ast.expr, kind: str, value: ast.AST | None, scope: Scope, block: Block) -> None:
        """Bind what a target names; a tuple is matched with a tuple of values where there is one."""
        if isinstance(target, ast.Tuple | ast.List):
            values: list[ast.expr | None] = [None] * len(target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) and kind == "value":
                values = list(value.elts)
            elif kind == "item" and isinstance(value, ast.Call) and path_text(value.func) == "enumerate" and value.args:
                values = [None, value.args[0]] if len(target.elts) == 2 else values
            elif kind == "item" and isinstance(value, ast.Call) and path_text(value.func) == "zip":
                values = list(value.args) if len(value.args) == len(target.elts) else values
            elif kind == "item" and (table := _table_of(value)) is not None and len(target.elts) == 2:
                values = [table, None]
            for element, part in zip(target.elts, values, strict=True):
                if part is not None:
                    self.bind_target(element, kind, part, scope, block)
                else:  # of a loop, what it runs over tells where it comes from; so does a name that is cut
                    known = value if kind == "item" or _cuts(value) else None
                    self.bind_target(element, "opaque", known, scope, block)
        elif isinstance(target, ast.Starred):
            self.bind_target(target.value, "opaque", None, scope, block)
        elif (name := path_text(target)) is not None:
            self.bind(scope, name, Binding(kind, target.lineno, block, value))

    def on_Import(self, node: ast.Import, scope: Scope, block: Block) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self.bind(scope, name, Binding("import", node.lineno, block, node, alias.name if alias.asname else name))

    def on_ImportFrom(self, node: ast.ImportFrom, scope: Scope, block: Block) -> None:
        for alias in node.names:
            binding = Binding("from", node.lineno, block, node, alias.name)
            if alias.name == "*":
                self.model.stars.append(binding)
            else:
                self.bind(scope, alias.asname or alias.name, binding)

    def on_Global(self, node: ast.Global, scope: Scope, block: Block) -> None:
        scope.globals.update(node.names)

    def on_FunctionDef(self, node: FunctionNode, scope: Scope, block: Block) -> None:
        self.bind(scope, node.name, Binding("def", node.lineno, block, node))
        self.decorators(node, scope, block)
        self.head(node, [*node.args.defaults, *node.args.kw_defaults], scope, block)
        inner = Block(block, "function", node)
        child = Scope("function", node, scope, inner)
        self.model.functions[node] = child
        arguments = node.args
        for arg in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            child.bindings[arg.arg] = [Binding("param", node.lineno, inner, arg)]
        for extra in (arguments.vararg, arguments.kwarg):
            if extra:
                child.bindings[extra.arg] = [Binding("opaque", node.lineno, inner)]
        self.body(node.body, child, inner)

    on_AsyncFunctionDef = on_FunctionDef

    def on_ClassDef(self, node: ast.ClassDef, scope: Scope, block: Block) -> None:
        self.bind(scope, node.name, Binding("class", node.lineno, block, node))
        self.decorators(node, scope, block)
        self.head(node, [*node.bases, *(keyword.value for keyword in node.keywords)], scope, block)
        inner = Block(block, "class", node)
        child = Scope("class", node, scope, inner)
        self.model.classes[node] = child
        self.body(node.body, child, inner)

    def decorators(self, node: FunctionNode | ast.ClassDef, scope: Scope, block: Block) -> None:
        for decorator in node.decorator_list:
            for call in calls_on(decorator, self.call_lines):
                self.model.calls.append(Site(call, node, scope, block, decorated=node))

    def head(
        self, node: FunctionNode | ast.ClassDef, parts: Iterable[ast.expr | None], scope: Scope, block: Block
    ) -> None:
        """What runs with the head of a definition: defaults, bases, bounds of type parameters."""
        for part in (*parts, *getattr(node, "type_params", ())):
            if part is not None:
                self.expressions(part, scope, block, node)

    def on_Return(self, node: ast.Return, scope: Scope, block: Block) -> None:
        self.model.returns.setdefault(scope.node, []).append((node, block))
        self.expressions(node, scope, block)

    # --- assignments -------------------------------------------------------------------------------------------

    def on_Assign(self, node: ast.Assign | ast.AnnAssign, scope: Scope, block: Block) -> None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets if node.value is not None else ():
            self.site(target, node.value, node, scope, block)
            self.bind_target(target, "value", node.value, scope, block)
        if isinstance(node.value, ast.Dict | ast.List | ast.Tuple | ast.Set):
            self.model.literals.append(Site(node, node, scope, block, None, node.value))
        self.expressions(node, scope, block)

    def on_AnnAssign(self, node: ast.AnnAssign, scope: Scope, block: Block) -> None:
        self.on_Assign(node, scope, block)
        self.bind_target(node.target, "annotation", node.annotation, scope, block)

    def on_AugAssign(self, node: ast.AugAssign, scope: Scope, block: Block) -> None:
        self.site(node.target, node.value, node, scope, block)
        self.bind_target(node.target, "changed", node.value, scope, block)
        if isinstance(node.op, ast.BitOr):  # namespace |= {...}
            update = ast.copy_location(ast.Attribute(node.target, "update", ast.Load()), node)
            call = ast.copy_location(ast.Call(update, [node.value], []), node)
            self.model.calls.append(Site(call, node, scope, block))
        self.expressions(node, scope, block)

    def on_Delete(self, node: ast.Delete, scope: Scope, block: Block) -> None:
        for target in node.targets:
            if isinstance(target, ast.Attribute):
                self.model.sites.append(Site(node, node, scope, block, target, None))

    def site(self, target: ast.expr, value: ast.expr | None, node: ast.stmt, scope: Scope, block: Block) -> None:
        if isinstance(target, ast.Tuple | ast.List):
            pairs = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            for index, element in enumerate(target.elts):
                part = value.elts[index] if pairs else value  # type: ignore[union-attr]
                self.site(element, part, node, scope, block)
        elif isinstance(target, ast.Starred):
            self.site(target.value, value, node, scope, block)
        elif isinstance(target, ast.Attribute | ast.Subscript):
            self.model.sites.append(Site(node, node, scope, block, target, value))

    # --- blocks ------------------------------------------------------------------------------------------------

    def on_If(self, node: ast.If, scope: Scope, block: Block) -> None:
        self.expressions(node.test, scope, block, node)
        body = Block(block, "if", node)
        self.narrow(checks(node.test, True), scope, node.lineno, body)
        self.body(node.body, scope, body)
        orelse = Block(block, "else", node)
        rejected = list(checks(node.test, False))
        if node.orelse:
            self.narrow(rejected, scope, node.orelse[0].lineno, orelse)
        self.body(node.orelse, scope, orelse)
        if rejected and node.body and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
            # `if not isinstance(x, C): return`: from here on x is a C
            self.narrow(rejected, scope, node.end_lineno or node.lineno, block)

    def narrow(self, known: Iterable[tuple[ast.expr, ast.expr]], scope: Scope, line: int, block: Block) -> None:
        """Bind what is known of the class of an object in a block."""
        for subject, cls in known:
            if name := path_text(subject):
                self.bind(scope, name, Binding("narrow", line, block, cls))

    def on_Assert(self, node: ast.Assert, scope: Scope, block: Block) -> None:
        self.expressions(node, scope, block)
        self.narrow(checks(node.test, True), scope, node.lineno, block)

    def on_For(self, node: ast.For | ast.AsyncFor, scope: Scope, block: Block) -> None:
        self.expressions(node.iter, scope, block, node)
        body = Block(block, "for", node)
        self.site(node.target, _first(node.iter), node, scope, block)
        self.bind_target(node.target, "item", node.iter, scope, body)
        self.body(node.body, scope, body)
        self.body(node.orelse, scope, Block(block, "else", node))

    on_AsyncFor = on_For

    def on_While(self, node: ast.While, scope: Scope, block: Block) -> None:
        self.expressions(node.test, scope, block, node)
        self.body(node.body, scope, Block(block, "while", node))
        self.body(node.orelse, scope, Block(block, "else", node))

    def on_With(self, node: ast.With | ast.AsyncWith, scope: Scope, block: Block) -> None:
        body = Block(block, "with", node)
        for item in node.items:
            self.expressions(item.context_expr, scope, block, node)
            if item.optional_vars is not None:
                self.site(item.optional_vars, item.context_expr, node, scope, block)
                self.bind_target(item.optional_vars, "value", item.context_expr, scope, body)
        self.body(node.body, scope, body)

    on_AsyncWith = on_With

    def on_Try(self, node: ast.Try, scope: Scope, block: Block) -> None:
        self.body(node.body, scope, Block(block, "try", node))
        for handler in node.handlers:
            self.body(handler.body, scope, Block(block, "except", node))
        self.body(node.orelse, scope, Block(block, "else", node))
        self.body(node.finalbody, scope, Block(block, "finally", node))

    on_TryStar = on_Try

    def on_Match(self, node: ast.Match, scope: Scope, block: Block) -> None:
        self.expressions(node.subject, scope, block, node)
        for case in node.cases:
            body = Block(block, "case", node)
            self.narrow(case_checks(node.subject, case.pattern), scope, case.pattern.lineno, body)
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.name:  # case model:
                self.bind(scope, case.pattern.name, Binding("value", case.pattern.lineno, body, node.subject))
            self.body(case.body, scope, body)

    # --- calls -------------------------------------------------------------------------------------------------

    def expressions(self, node: ast.AST, scope: Scope, block: Block, statement: ast.stmt | None = None) -> None:
        for part in calls_and_names_on(node, self.call_lines) if self.call_lines else ():
            owner = statement or node
            assert isinstance(owner, ast.stmt)
            if isinstance(part, ast.Call):
                self.model.calls.append(Site(part, owner, scope, block))
                self.text(part, scope, block)
            elif isinstance(part, ast.NamedExpr):
                self.bind_target(part.target, "value", part.value, scope, block)
            elif isinstance(part.target, ast.Name):  # [setattr(cls, "forward", fn) for cls in classes]
                self.bind(scope, part.target.id, Binding("item", owner.lineno, block, part.iter))
            else:
                self.site(part.target, _first(part.iter), owner, scope, block)

    def text(self, call: ast.Call, scope: Scope, block: Block) -> None:
        """The statements of `exec("...")`, where the text is written out: they stand where the call does."""
        if path_text(call.func) not in {"exec", "eval"} or len(call.args) != 1:
            return
        text: ast.AST | None = call.args[0]
        if isinstance(text, ast.Call) and path_text(text.func) == "compile" and text.args:
            text = text.args[0]
        if isinstance(text, ast.Name):
            bindings = scope.bindings_of(text.id)
            text = bindings[-1].node if bindings and bindings[-1].kind == "value" else None
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            return
        try:
            body = ast.parse(text.value.strip()).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for node in (inner for statement in body for inner in walk(statement)):
            node.lineno, node.col_offset = call.lineno, call.col_offset  # type: ignore[attr-defined]
            node.end_lineno, node.end_col_offset = call.end_lineno, call.end_col_offset  # type: ignore[attr-defined]
        model = self.model
        blocks, sites, calls = len(model.blocks), len(model.sites), len(model.calls)
        self.body(body, scope, block)
        del model.blocks[blocks:]  # which are asked what stands on a line
        for site in (*model.sites[sites:], *model.calls[calls:]):
            site.in_text = True


_HANDLERS: dict[type[ast.stmt], Callable[..., None]] = {
    getattr(ast, name.removeprefix("on_")): handler
    for name, handler in vars(_Walker).items()
    if name.startswith("on_") and hasattr(ast, name.removeprefix("on_"))
}


def _first(value: ast.expr) -> ast.expr:
    """What a loop puts into its target first, where that is written out."""
    return value.elts[0] if isinstance(value, ast.Tuple | ast.List) and value.elts else value


def _table_of(value: ast.AST | None) -> ast.expr | None:
    """The dict of `table.items()`: what runs over it gets its keys."""
    match value:
        case ast.Call(func=ast.Attribute(attr="items", value=table), args=[]):
            return table
    return None


def _cuts(value: ast.AST | None) -> bool:
    """`path.rsplit(".", 1)` and its kin."""
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in {"rsplit", "rpartition", "split", "partition"}
    )


def checks(test: ast.expr, positive: bool) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(object, class) pairs that hold when `test` is true (or, not `positive`, when it is false)."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            yield from checks(test.operand, not positive)
        case ast.BoolOp() if isinstance(test.op, ast.And) is positive:
            for value in test.values:
                yield from checks(value, positive)
        case ast.Call(func=ast.Name(id="isinstance"), args=[subject, cls]) if positive:
            yield subject, cls
        case ast.Call(func=ast.Name(id="issubclass"), args=[subject, cls]) if positive:
            yield subject, ast.Subscript(ast.Name("type", ast.Load()), cls, ast.Load())
        case ast.Compare(ops=[ast.Eq() | ast.Is()], left=left, comparators=[right]) if positive:
            for name, other in ((left, right), (right, left)):
                if (known := _classified(name)) is not None:
                    yield known, other
        case ast.Compare(ops=[ast.In()], left=left, comparators=[names]) if positive:
            if (known := _classified(left)) is not None:
                yield known, names
        case ast.Compare(ops=[ast.NotEq() | ast.IsNot()]) if not positive:
            yield from checks(ast.Compare(test.left, [ast.Eq()], test.comparators), True)


def case_checks(subject: ast.expr, pattern: ast.pattern) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The same for `case Cls():` of a `match`."""
    match pattern:
        case ast.MatchClass(cls=cls):
            yield subject, cls
        case ast.MatchAs(pattern=ast.pattern() as inner):
            yield from case_checks(subject, inner)
        case ast.MatchOr(patterns=[first, *_]):
            yield from case_checks(subject, first)


def _classified(node: ast.expr) -> ast.expr | None:
    """`x` in `type(x)` and `x.__class__`, and in their `__name__`."""
    match node:
        case ast.Attribute(attr="__name__" | "__qualname__", value=inner):
            return _classified(inner)
        case ast.Call(func=ast.Name(id="type"), args=[subject]) | ast.Attribute(attr="__class__", value=subject):
            return subject
    return None
