"""What a name is bound to: imports, definitions, assignments, loops, parameters, annotations, `isinstance`."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, cast

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.scanner.prefilter import lines_matching
from mcore_unpatch.scanner.refs import Ref
from mcore_unpatch.scanner.scopes import Binding, Block, FunctionNode, ModuleModel, Scope, calls_on, path_text

if TYPE_CHECKING:
    from mcore_unpatch.scanner.project import Project
    from mcore_unpatch.scanner.resolve import Resolver

MAX_DEPTH = 24
CONTAINERS = {"Optional", "Union", "List", "list", "Sequence", "Iterable", "Iterator", "tuple", "Tuple", "Final"}


class Names:
    """Resolves names of one module; asks the project for the modules it imports."""

    def __init__(self, model: ModuleModel, project: Project, related: bool) -> None:
        self.model, self.project = model, project
        # Whether the file has to do with Megatron at all: only then are well-known attribute names taken as evidence.
        self.related = related
        self._depth = 0
        self._active: set[tuple[int, int]] = set()
        self._known: dict[Binding, Ref | None] = {}
        self._calls_by_name: dict[str, list[tuple[ast.Call, Scope, Block]]] = {}

    # --- entry points ------------------------------------------------------------------------------------------

    def expr(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> Ref | None:
        """What `node`, used at `line`, stands for; None when nothing is known."""
        if node is None or self._depth > MAX_DEPTH:
            return None
        key = (id(node), line)
        if key in self._active:
            return None
        handler = getattr(self, "_on_" + type(node).__name__, None)
        if handler is None:
            return None
        self._active.add(key)
        self._depth += 1
        try:
            return handler(node, scope, block, line)  # type: ignore[no-any-return]
        finally:
            self._depth -= 1
            self._active.discard(key)

    def export(self, name: str) -> Ref | None:
        """What another module gets when it imports `name` from this one."""
        scope = self.model.scope
        for binding in reversed(scope.bindings.get(name, [])):
            if ref := self._guarded(binding, scope):
                return ref
        for star in self.model.stars:
            assert isinstance(star.node, ast.ImportFrom)
            if ref := self._import_from(star.node, name):
                return ref
        return None

    def _guarded(self, binding: Binding, scope: Scope) -> Ref | None:
        """What a binding gives, asked once; cycles and endless chains end here."""
        if binding in self._known:
            return self._known[binding]
        if self._depth > MAX_DEPTH:
            return None
        self._known[binding] = None  # what a cycle gets to see
        self._depth += 1
        try:
            ref = self._known[binding] = self._binding(binding, scope)
            return ref
        finally:
            self._depth -= 1

    # --- names -------------------------------------------------------------------------------------------------

    def _on_Name(self, node: ast.Name, scope: Scope, block: Block, line: int) -> Ref | None:
        found, ref = self._lookup(node.id, scope, block, line)
        if ref is None and not found:
            for star in self.model.stars:
                assert isinstance(star.node, ast.ImportFrom)
                if ref := self._import_from(star.node, node.id):
                    return ref
        if ref is None and node.id == "output_layer" and self.related:
            return output_layer("the name `output_layer`")
        return ref

    def _lookup(self, name: str, scope: Scope, block: Block, line: int) -> tuple[bool, Ref | None]:
        for home in scope.chain():
            bindings = home.bindings.get(name)
            if not bindings:
                continue
            here = home is scope
            for binding in reversed(bindings):
                if here and (binding.line > line or (binding.line == line and binding.kind == "value")):
                    continue
                if binding.kind == "narrow" and not (here and block.within(binding.block)):
                    continue
                if ref := self._guarded(binding, home):
                    return True, ref
                if here and block.within(binding.block) and binding.kind not in {"narrow", "annotation"}:
                    return True, None  # this one always holds here: what came before it does not count
            return True, None
        return False, None

    def _binding(self, binding: Binding, scope: Scope) -> Ref | None:
        node, line, block = binding.node, binding.line, binding.block
        match binding.kind:
            case "import":
                return self._module(binding.detail)
            case "from":
                assert isinstance(node, ast.ImportFrom)
                return self._import_from(node, binding.detail)
            case "def":
                return Ref("local-function", home=self._whole, node=node)
            case "class":
                return self._own_class(node)
            case "value":
                return self.expr(node, scope, block, line)
            case "item":
                return self._item(node, scope, block, line)
            case "annotation":
                return self._annotation(node, scope, block, line)
            case "narrow":
                ref = self._classes(node, scope, block, line)
                return ref and ref.but(kind="instance", sure=True, why=f"the isinstance check on line {line}")
            case "param":
                assert isinstance(node, ast.arg)
                return self._param(node, scope)
        return None

    def _module(self, dotted: str) -> Ref | None:
        if dotted == "megatron" or dotted == api.ROOT or dotted.startswith(api.ROOT + "."):
            symbol = api.lookup(dotted)
            return Ref("module", symbol.name if symbol else dotted)
        home = self.project.find(self.model.path, dotted, 0)
        return Ref("local-module", dotted, home=home) if home else Ref("external", dotted)

    def _import_from(self, node: ast.ImportFrom, name: str) -> Ref | None:
        module = node.module or ""
        if not node.level:
            full = f"{module}.{name}"
            if full == api.ROOT or full.startswith(api.ROOT + "."):
                return core_name(full)
        home = self.project.find(self.model.path, module, node.level)
        if home is not None:
            if home is not self._whole and (ref := home.export(name)):
                return ref
            if sub := self.project.find(self.model.path, f"{module}.{name}" if module else name, node.level):
                return Ref("local-module", name, home=sub)
            return None
        return None if node.level else Ref("external", f"{module}.{name}")

    def _own_class(self, node: ast.AST | None) -> Ref:
        """A class of the repository: known by the first of its bases that leads to Megatron Core."""
        assert isinstance(node, ast.ClassDef)
        scope = self.model.classes[node]
        for base in node.bases:
            assert scope.parent is not None
            ref = self.expr(base, scope.parent, scope.parent.block, node.lineno)
            if ref and ref.kind == "class" and ref.is_core:
                return Ref(
                    "class", ref.name, ref.sure, f"`{node.name}`, which derives from it", home=self._whole, node=node
                )
        return Ref("class", "", home=self._whole, node=node)

    def _param(self, node: ast.arg, scope: Scope) -> Ref | None:
        function = scope.node
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        positional = [*function.args.posonlyargs, *function.args.args]
        outer = scope.parent
        if node.annotation is not None and outer is not None:
            if ref := self._annotation(node.annotation, outer, outer.block, function.lineno):
                return ref
        if outer is not None and outer.kind == "class" and positional and node is positional[0]:
            decorators = {path_text(d) for d in function.decorator_list}
            own = self._own_class(outer.node)
            if "classmethod" in decorators:
                return own
            return None if "staticmethod" in decorators else own.but(kind="instance", why="`self`")
        if ref := self._default(node, function, scope):
            return ref
        return self._from_callers(node, function, scope)

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

    def _from_callers(self, node: ast.arg, function: FunctionNode, scope: Scope) -> Ref | None:
        """A parameter is what this module's own calls pass for it."""
        is_method = scope.parent is not None and scope.parent.kind == "class"
        for call, caller, block in self.calls_of(function.name):
            value = argument(call, function, node.arg, is_method)
            if value is None:
                continue
            ref = self.expr(value, caller, block, call.lineno)
            if ref and ref.is_core:
                return ref.but(why=ref.why or f"the call on line {call.lineno}")
        return None

    def calls_of(self, name: str) -> list[tuple[ast.Call, Scope, Block]]:
        """Calls in this module whose function is written `name` or `something.name`."""
        if name not in self._calls_by_name:
            found: list[tuple[ast.Call, Scope, Block]] = []
            self._calls_by_name[name] = found
            for line in lines_matching(re.compile(rb"\b" + name.encode() + rb"\s*\("), self.model.data):
                scope, block = self.model.at(line)
                calls = [c for c in calls_on(scope.node, [line]) if _leaf(c.func) == name]
                found += [(call, scope, block) for call in calls]
        return self._calls_by_name[name]

    @property
    def _whole(self) -> Resolver:
        return cast("Resolver", self)

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
        return None

    def _classes(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> Ref | None:
        """A class, or the first known one of a tuple of classes."""
        if isinstance(node, ast.Tuple | ast.List):
            refs = [r for e in node.elts if (r := self.expr(e, scope, block, line)) and r.kind == "class" and r.is_core]
            return refs[0] if refs else None
        if isinstance(node, ast.BinOp):
            return self._classes(node.left, scope, block, line) or self._classes(node.right, scope, block, line)
        ref = self.expr(node, scope, block, line)
        return ref if ref and ref.kind == "class" and ref.is_core else None

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
        for home in scope.chain():
            for binding in home.bindings.get(name, []):
                if isinstance(binding.node, ast.Tuple | ast.List | ast.Set) and binding.node.elts:
                    return self._item(binding.node, home, binding.block, binding.line)
        bindings = scope.bindings.get(name, [])
        if not any(isinstance(b.node, ast.List | ast.ListComp) and not getattr(b.node, "elts", None) for b in bindings):
            return None
        for call, caller, block in self.calls_of("append"):
            if caller is scope and path_text(call.func) == f"{name}.append" and call.args:
                ref = self.expr(call.args[0], caller, block, call.lineno)
                if ref is not None and ref.is_core:
                    return ref
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


def argument(call: ast.Call, function: FunctionNode, name: str, is_method: bool) -> ast.expr | None:
    """The expression a call passes for parameter `name`."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [arg.arg for arg in [*function.args.posonlyargs, *function.args.args]]
    if is_method and isinstance(call.func, ast.Attribute):
        names = names[1:]
    if name in names and names.index(name) < len(call.args):
        value = call.args[names.index(name)]
        return None if isinstance(value, ast.Starred) else value
    return None


def _leaf(node: ast.expr) -> str | None:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", None)
