"""What a name is bound to: imports, definitions, assignments, loops, parameters, annotations, `isinstance`."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections.abc import Callable, Hashable
from operator import attrgetter

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner.names.resolver import Ref, Resolver
from mcore_unpatch.scanner.sources.callers import argument, called_as
from mcore_unpatch.scanner.sources.effort import DEPTH
from mcore_unpatch.scanner.sources.scopes import Binding, Block, FunctionNode, Scope, path_text

CONTAINERS = {"Optional", "Union", "List", "list", "Sequence", "Iterable", "Iterator", "tuple", "Tuple", "Final"}


class Bindings(Resolver):
    """Resolves names of one module; asks the project for the modules it imports."""

    # --- entry points ------------------------------------------------------------------------------------------

    def expr(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> Ref | None:
        """What `node`, used at `line`, stands for; None when nothing is known."""
        handler = getattr(self, "_on_" + type(node).__name__, None)
        if handler is None:
            return None
        return self._answer((node, scope, block, line), handler, node, scope, block, line)

    def export(self, name: str) -> Ref | None:
        """What another module gets when it imports `name` from this one."""
        return self._answer(name, self._export, name)

    def _export(self, name: str) -> Ref | None:
        scope = self.model.scope
        for binding in reversed(scope.bindings.get(name, [])):
            if ref := self.bound(binding, scope):
                return ref
        for star in self.model.stars:
            assert isinstance(star.node, ast.ImportFrom)
            if ref := self._import_from(star.node, name):
                return ref
        return None

    def bound(self, binding: Binding, scope: Scope) -> Ref | None:
        """What a binding gives."""
        return self._answer(binding, self._binding, binding, scope)

    def _answer(self, key: Hashable, ask: Callable[..., Ref | None], *arguments: object) -> Ref | None:
        """The answer to a question, asked once; cycles and endless chains end here."""
        effort = self.project.effort
        effort.spend()
        if key in self._known:
            return self._known[key]
        open_key = (self, key)
        if open_key in effort.passing or effort.depth > DEPTH:
            effort.cuts += 1
            return effort.passing.get(open_key)
        cuts = effort.cuts
        effort.passing[open_key] = None  # what a cycle gets to see
        effort.depth += 1
        try:
            ref = ask(*arguments)
        finally:
            effort.depth -= 1
            if not effort.depth:
                effort.passing.clear()
        if effort.cuts == cuts or not effort.depth:
            self._known[key] = ref
            effort.passing.pop(open_key, None)
        else:
            effort.passing[open_key] = ref
        return ref

    # --- names -------------------------------------------------------------------------------------------------

    def _on_Name(self, node: ast.Name, scope: Scope, block: Block, line: int) -> Ref | None:
        found, ref = self._lookup(node.id, scope, block, line)
        if ref is None and not found:
            for star in self.model.stars:
                assert isinstance(star.node, ast.ImportFrom)
                if ref := self._import_from(star.node, node.id):
                    return ref
        if ref is None and found and (ref := self._collected(node.id, scope)):
            return ref
        if ref is None and node.id == "output_layer" and self.related:
            return output_layer("the name `output_layer`")
        return ref

    def _lookup(self, name: str, scope: Scope, block: Block, line: int) -> tuple[bool, Ref | None]:
        for home in scope.chain():
            if name not in home.bindings:
                continue
            if home is not scope:
                return True, self._answer(("outer", home, name), self._outer, home, name)
            return True, self._bound_above(name, home, block, line)
        return False, None

    def _bound_above(self, name: str, scope: Scope, block: Block, line: int) -> Ref | None:
        """What a name is bound to by the lines above, the last one first, in the scope where it is used."""
        bindings = scope.bindings[name]
        index = bisect_right(bindings, line, key=attrgetter("line")) - 1
        passed = []
        cuts, ref = self.project.effort.cuts, None
        while index >= 0:
            binding = bindings[index]
            if block.parent is not None and block is not scope.block and binding.line < block.line:
                block = block.parent  # what stands before a block is to it what it is to the block around
                continue
            key = (scope, name, block, index)
            if key in self._above:
                ref = self._above[key]
                break
            index -= 1
            self.project.effort.spend()
            if binding.line < line:  # from here on the line no longer matters
                passed.append(key)
            elif binding.kind == "value":
                continue  # `x = f(x)`
            holds = block.within(binding.block)
            if (binding.kind == "narrow" and not holds) or binding.kind == "changed":
                continue
            ref = self.bound(binding, scope)
            if ref is not None or (holds and binding.kind not in {"narrow", "annotation"}):
                break  # one that always holds here: what came before it does not count
        if cuts == self.project.effort.cuts:
            self._above.update(dict.fromkeys(passed, ref))
        return ref

    def _outer(self, home: Scope, name: str) -> Ref | None:
        """What a name of a scope is to the scopes within: they may run whenever, so any of its bindings may hold."""
        bindings = (binding for binding in reversed(home.bindings[name]) if binding.kind != "narrow")
        return next((ref for binding in bindings if (ref := self.bound(binding, home))), None)

    def _binding(self, binding: Binding, scope: Scope) -> Ref | None:
        node, line, block = binding.node, binding.line, binding.block
        match binding.kind:
            case "import":
                return self._module(binding.detail)
            case "from":
                assert isinstance(node, ast.ImportFrom)
                return self._import_from(node, binding.detail)
            case "def":
                return Ref("local-function", home=self, node=node)
            case "class":
                assert isinstance(node, ast.ClassDef)
                return self.own_class(node)
            case "value":
                return self.expr(node, scope, block, line)
            case "item":
                return self._item(node, scope, block, line)
            case "annotation":
                return self._annotation(node, scope, block, line)
            case "narrow":
                assert isinstance(node, ast.expr)
                if isinstance(node, ast.Subscript):  # issubclass
                    return self._classes(node.slice, scope, block, line)
                ref = self._classes(node, scope, block, line)
                return ref and ref.but(kind="instance", sure=True, why=f"the isinstance check on line {node.lineno}")
            case "param":
                assert isinstance(node, ast.arg)
                return self._param(node, scope)
        return None

    def _module(self, dotted: str) -> Ref | None:
        if dotted == "megatron" or within(dotted):
            symbol = api.lookup(dotted)
            return Ref("module", symbol.name if symbol else dotted)
        home = self.project.find(self.model.path, dotted, 0)
        return Ref("local-module", dotted, home=home) if home else Ref("external", dotted)

    def _import_from(self, node: ast.ImportFrom, name: str) -> Ref | None:
        module = node.module or ""
        if not node.level:
            full = f"{module}.{name}"
            if within(full):
                return core_name(full)
        home = self.project.find(self.model.path, module, node.level)
        if home is not None:
            if home is not self and (ref := home.export(name)):
                return ref
            if sub := self.project.find(self.model.path, f"{module}.{name}" if module else name, node.level):
                return Ref("local-module", name, home=sub)
            return None
        return None if node.level else Ref("external", f"{module}.{name}")

    def own_class(self, node: ast.ClassDef) -> Ref:
        """A class of this module: known by the first of its bases that leads to Megatron Core."""
        scope = self.model.classes[node]
        for base in node.bases:
            assert scope.parent is not None
            ref = self.expr(base, scope.parent, scope.parent.block, node.lineno)
            if ref and ref.kind == "class" and ref.is_core:
                return Ref("class", ref.name, ref.sure, f"`{node.name}`, which derives from it", home=self, node=node)
        return Ref("class", "", home=self, node=node)

    def _param(self, node: ast.arg, scope: Scope) -> Ref | None:
        function = scope.node
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        positional = [*function.args.posonlyargs, *function.args.args]
        self.project.effort.spend(len(positional))
        outer = scope.parent
        if node.annotation is not None and outer is not None:
            if ref := self._annotation(node.annotation, outer, outer.block, function.lineno):
                return ref
        if outer is not None and outer.kind == "class" and positional and node is positional[0]:
            decorators = {path_text(d) for d in function.decorator_list}
            assert isinstance(outer.node, ast.ClassDef)
            own = self.own_class(outer.node)
            if "classmethod" in decorators:
                return own
            return None if "staticmethod" in decorators else own.but(kind="instance", why="`self`")
        if ref := self._default(node, function, scope) or self._handed_by_decorator(function):
            return ref
        is_method = outer is not None and outer.kind == "class"
        position = positional.index(node) if node in positional else -1
        called = called_as(function, outer)
        key = ("callers", called, node.arg, position, is_method)
        return self._answer(key, self._from_callers, node, function, is_method, called)

    def _handed_by_decorator(self, function: FunctionNode) -> Ref | None:
        """`@wrapt.when_imported("megatron.core.utils")` hands the module to the function."""
        for one in function.decorator_list:
            match one:
                case ast.Call(func=ast.Name(id="when_imported") | ast.Attribute(attr="when_imported"), args=[first]):
                    name = first.value if isinstance(first, ast.Constant) else None
                    return self._module(name) if isinstance(name, str) else None
        return None

    def _default(self, node: ast.arg, function: FunctionNode, scope: Scope) -> Ref | None:
        spec = function.args
        positional = [*spec.posonlyargs, *spec.args]
        defaults: list[tuple[ast.arg, ast.expr | None]] = [
            *zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True),
            *zip(spec.kwonlyargs, spec.kw_defaults, strict=True),
        ]
        for arg, value in defaults:
            if arg is node and value is not None and scope.parent is not None:
                return self.expr(value, scope.parent, scope.parent.block, function.lineno)
        return None

    def _from_callers(self, node: ast.arg, function: FunctionNode, is_method: bool, called: str) -> Ref | None:
        """A parameter is what this module's own calls pass for it."""
        for call, caller, block in self.callers.of(called, self.project.effort):
            self.project.effort.spend(1 + len(call.keywords))
            value = argument(call, function, node.arg, is_method)
            if value is None:
                continue
            ref = self.expr(value, caller, block, call.lineno)
            if ref and ref.is_core:
                return ref.but(why=ref.why or f"the call on line {call.lineno}")
        return None

    def annotated(self, node: ast.expr, scope: Scope, line: int) -> Ref | None:
        """An instance of the class an annotation names."""
        return self._annotation(node, scope, scope.block, line)

    # --- annotations and classes -------------------------------------------------------------------------------

    def _annotation(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> Ref | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except (SyntaxError, ValueError):
                return None
        if isinstance(node, ast.BinOp):
            return self._annotation(node.left, scope, block, line) or self._annotation(node.right, scope, block, line)
        if isinstance(node, ast.Tuple):
            return next((r for e in node.elts if (r := self._annotation(e, scope, block, line))), None)
        if isinstance(node, ast.Subscript):
            outer = (path_text(node.value) or "").rpartition(".")[2]
            if outer in {"type", "Type"}:
                return self._classes(node.slice, scope, block, line)
            if outer in CONTAINERS:
                return self._annotation(node.slice, scope, block, line)
            return None
        ref = self.expr(node, scope, block, line)
        if ref and ref.kind == "class" and (ref.is_core or ref.home):
            return ref.but(kind="instance", why="its annotation")
        alias = self.model.scope.bindings.get(node.id, []) if ref is None and isinstance(node, ast.Name) else []
        if alias and isinstance(alias[0].node, ast.Subscript | ast.BinOp):  # Models = list[GPTModel]
            return self._annotation(alias[0].node, self.model.scope, alias[0].block, alias[0].line)
        return None

    def _classes(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> Ref | None:
        """A class, or the first known one of several, written out, under a name, or by their own names."""
        several: list[ast.expr | None] = []
        match node:
            case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
                several = list(elements)
            case ast.Dict(keys=keys):
                several = keys
            case ast.BinOp(left=left, right=right):
                several = [left, right]
            case ast.Call(func=ast.Name(id="tuple" | "list" | "set" | "frozenset"), args=[inner]):
                several = [inner]
            case ast.Call(func=ast.Attribute(attr="keys", value=inner), args=[]):
                several = [inner]
            case ast.Constant(value=str(name)) if (known := api.class_named(name)) and self.related:
                return Ref("class", known)
            case _:
                ref = self.expr(node, scope, block, line)
                if ref is not None and ref.kind == "class" and ref.is_core:
                    return ref
                return self._answer(("classes", node), self._classes_under, node, scope)
        return next((ref for one in several if (ref := self._classes(one, scope, block, line))), None)

    def _classes_under(self, node: ast.AST | None, scope: Scope) -> Ref | None:
        """The first class of a collection that goes by a name, in this file or in the one it comes from."""
        home = next((home for home in scope.chain() if isinstance(node, ast.Name) and node.id in home.bindings), None)
        for binding in home.bindings[node.id] if home is not None and isinstance(node, ast.Name) else ():
            ref = None
            if binding.kind == "value":
                ref = self._classes(binding.node, home or scope, binding.block, binding.line)
            elif binding.kind == "from" and isinstance(binding.node, ast.ImportFrom):
                found = self.project.find(self.model.path, binding.node.module or "", binding.node.level)
                ref = found.exported_class(binding.detail) if found is not None and found is not self else None
            if ref is not None:
                return ref
        return None

    def exported_class(self, name: str) -> Ref | None:
        """The first class of a collection that another module gets when it imports `name` from this one."""
        scope = self.model.scope
        return self._answer(("classes", name), self._classes_under, ast.Name(name, ast.Load()), scope)

    # --- items of collections ------------------------------------------------------------------------------------

    def _item(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> Ref | None:
        """An item of a collection; a list of models is taken for the model itself."""
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            refs = [r for e in node.elts if (r := self.expr(e, scope, block, line)) and r.is_core]
            return refs[0].but(also=tuple(r.name for r in refs[1:])) if refs else None
        if isinstance(node, ast.Name) and (ref := self._collected(node.id, scope)):
            return ref
        if isinstance(node, ast.Attribute) and node.attr == "layers":
            owner = self.expr(node.value, scope, block, line)
            item = api.item_class(owner.name, "layers") if owner and owner.kind == "instance" else None
            if owner and item:
                return Ref("instance", item, owner.sure, owner.why)
        ref = self.expr(node, scope, block, line)
        if ref is None:
            return None
        if ref.kind == "list":
            return ref.but(kind="instance")
        return ref if ref.kind == "instance" else None

    def _collected(self, name: str, scope: Scope) -> Ref | None:
        """An item of a list that is written out, or that this function filled with `name.append(item)`."""
        return self._answer(("collected", scope, name), self._search_collected, name, scope)

    def _search_collected(self, name: str, scope: Scope) -> Ref | None:
        for home in scope.chain():
            if ref := self._answer(("written out", home, name), self._written_out, name, home):
                return ref
        bindings = scope.bindings.get(name, [])
        if not any(isinstance(b.node, ast.List | ast.ListComp) and not getattr(b.node, "elts", None) for b in bindings):
            return None
        for call, block in self.callers.appends(name, scope, self.project.effort):
            if call.args:
                ref = self.expr(call.args[0], scope, block, call.lineno)
                if ref is not None and ref.is_core:
                    return ref
        return None

    def _written_out(self, name: str, scope: Scope) -> Ref | None:
        for binding in scope.bindings.get(name, []):
            if isinstance(binding.node, ast.Tuple | ast.List | ast.Set) and binding.node.elts:
                return self._item(binding.node, scope, binding.block, binding.line)
        return None


def core_name(full: str) -> Ref:
    """A dotted name below `megatron.core`, known to the tables or not."""
    symbol = api.lookup(full)
    if symbol is not None:
        return Ref("value" if symbol.kind == "state" else symbol.kind, symbol.name)
    leaf = full.rpartition(".")[2]
    # Not in any release the tables know: classes are written in capitals, anything else could be whatever.
    kind = "class" if leaf[:1].isupper() and not leaf.isupper() else "value"
    return Ref(kind, full, why="a name the known releases do not have")


def output_layer(why: str) -> Ref:
    """The LM head of a model nothing else is known of."""
    return Ref("instance", layout.COLUMN_LINEAR, False, why, via=f"{layout.GPT_MODEL}.output_layer")
