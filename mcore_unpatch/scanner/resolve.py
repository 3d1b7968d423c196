"""Say what an expression stands for: imports, aliases, annotations, constructors, `isinstance`, returns, attributes."""

from __future__ import annotations

import ast
import re
from functools import cached_property
from typing import TYPE_CHECKING

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.scanner.prefilter import lines_matching
from mcore_unpatch.scanner.refs import Ref
from mcore_unpatch.scanner.scopes import Binding, Block, FunctionNode, ModuleModel, Scope, calls_on, path_text
from mcore_unpatch.scanner.source import decode

if TYPE_CHECKING:
    from mcore_unpatch.scanner.project import Project

MAX_DEPTH = 24
PASS_THROUGH_METHODS = {"to", "cuda", "cpu", "eval", "train", "half", "bfloat16", "float", "requires_grad_", "copy"}
PASS_THROUGH_CALLS = {"list", "tuple", "reversed", "iter", "next", "sorted", "set", "copy", "deepcopy"}
UNWRAPPERS = {"unwrap_model", "unwrap_module", "unwrap_megatron_model", "unwrap_ddp"}
CONTAINERS = {"Optional", "Union", "List", "list", "Sequence", "Iterable", "Iterator", "tuple", "Tuple", "Final"}


class Resolver:
    """Resolves expressions of one module; asks the project for the modules it imports."""

    def __init__(self, model: ModuleModel, project: Project, related: bool) -> None:
        self.model, self.project = model, project
        # Whether the file has to do with Megatron at all: only then are well-known attribute names taken as evidence.
        self.related = related
        self._depth = 0
        self._active: set[tuple[int, int]] = set()
        self._known: dict[Binding, Ref | None] = {}
        self._calls_by_name: dict[str, list[tuple[ast.Call, Scope, Block]]] = {}

    @cached_property
    def lines(self) -> list[str]:
        """The text of the file, line by line."""
        return decode(self.model.data).splitlines()

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
            return _output_layer("the name `output_layer`")
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
                return Ref("local-function", home=self, node=node)
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
                return ref and ref.but(kind="instance", sure=True, why=f"isinstance check on line {line}")
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
            if home is not self and (ref := home.export(name)):
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
                return Ref("class", ref.name, ref.sure, f"`{node.name}` derives from it", home=self, node=node)
        return Ref("class", "", home=self, node=node)

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
                return ref.but(why=ref.why or f"passed by the call on line {call.lineno}")
        return None

    def calls_of(self, name: str) -> list[tuple[ast.Call, Scope, Block]]:
        """Calls in this module whose function is written `name` or `something.name`."""
        if name not in self._calls_by_name:
            found = self._calls_by_name[name] = []
            for line in lines_matching(re.compile(rb"\b" + name.encode() + rb"\s*\("), self.model.data):
                scope, block = self.model.at(line)
                for call in calls_on(scope.node, [line]):
                    if isinstance(call.func, ast.Name | ast.Attribute) and _leaf(call.func) == name:
                        found.append((call, scope, block))
        return self._calls_by_name[name]

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
            return ref.but(kind="instance", why="annotation")
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

    # --- expressions -------------------------------------------------------------------------------------------

    def _on_Attribute(self, node: ast.Attribute, scope: Scope, block: Block, line: int) -> Ref | None:
        if text := path_text(node):
            _, ref = self._lookup(text, scope, block, line)
            if ref:
                return ref
        base = self.expr(node.value, scope, block, line)
        if base is not None and (ref := self._member(base, node.attr)):
            return ref
        if base is not None and base.kind in {"module", "external", "local-module"}:
            return None
        if base is not None and base.kind in {"class", "instance"} and not base.is_core:
            return None
        return self._well_known(node)

    def _member(self, base: Ref, name: str) -> Ref | None:
        match base.kind:
            case "module":
                return core_name(f"{base.name}.{name}")
            case "local-module":
                assert base.home is not None
                return base.home.export(name) or self._module(f"{base.name}.{name}")
            case "external":
                return Ref("external", f"{base.name}.{name}")
            case "class":
                if method := self._own_method(base, name):
                    return method
                if base.is_core and api.has_callable(base.name, name):
                    return Ref("function", f"{base.name}.{name}", base.sure, base.why)
                if base.is_core and (symbol := api.lookup(f"{base.name}.{name}")):
                    return Ref(symbol.kind, symbol.name)
                return None
            case "instance":
                return self._instance_member(base, name)
        return None

    def _instance_member(self, base: Ref, name: str) -> Ref | None:
        if name == "__class__":
            return base.but(kind="class")
        if base.home is not None and base.node is not None:
            ref = base.home.own_attribute(base.node, name) or self._own_method(base, name)
            if ref is not None:
                return ref
        if not base.is_core:
            return None
        if item := api.item_class(base.name, name):
            return Ref("list", item, base.sure, base.why)
        if name == "output_layer" and api.is_model(base.name):
            owner = base.name if api.submodule(base.name, name) is not None else layout.GPT_MODEL
            return Ref("instance", layout.COLUMN_LINEAR, base.sure, base.why, via=f"{owner}.output_layer")
        held = api.submodule(base.name, name)
        if held:
            return Ref("instance", held, base.sure, base.why)
        if held == "":
            return Ref("instance", "megatron.core.transformer.module.MegatronModule", False, base.why, via=f"{base.name}.{name}")
        if name in {"module", "language_model"} and api.is_model(base.name):
            return Ref("instance", layout.GPT_MODEL, False, f"`.{name}` of a Megatron model")
        if api.has_callable(base.name, name):
            return Ref("function", f"{base.name}.{name}", base.sure, base.why)
        if name == "mtp" and api.is_model(base.name):
            return Ref("instance", layout.MTP_BLOCK, base.sure, base.why)
        return None

    def _own_method(self, base: Ref, name: str, depth: int = 0) -> Ref | None:
        """A method that a class of the repository, or one of its own bases, defines."""
        if base.home is None or not isinstance(base.node, ast.ClassDef) or depth > 6:
            return None
        for item in base.node.body:
            if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == name:
                return Ref("local-function", home=base.home, node=item)
        for parent in base.home.own_bases(base.node):
            if found := self._own_method(parent, name, depth + 1):
                return found
        return None

    def own_bases(self, node: ast.ClassDef) -> list[Ref]:
        """The bases of a class of this module that the repository defines."""
        scope = self.model.classes[node].parent
        assert scope is not None
        refs = [self.expr(base, scope, scope.block, node.lineno) for base in node.bases]
        return [ref for ref in refs if ref is not None and ref.kind == "class" and ref.home is not None]

    def own_attribute(self, node: ast.AST, name: str) -> Ref | None:
        """`self.name` of a class of this module: what its methods assign, or what the class body annotates."""
        assert isinstance(node, ast.ClassDef)
        scope = self.model.classes[node]
        for binding in reversed(scope.bindings.get(name, [])):
            if ref := self._guarded(binding, scope):
                return ref
        for item in node.body:
            method = self.model.functions.get(item)
            if method is not None:
                for binding in method.bindings.get(f"self.{name}", []):
                    if binding.kind in {"value", "annotation"} and (ref := self._guarded(binding, method)):
                        return ref
        return None

    def _well_known(self, node: ast.Attribute) -> Ref | None:
        """Attributes only Megatron's models have, on an object nothing else is known of."""
        if not self.related:
            return None
        if node.attr == "output_layer":
            return _output_layer("the attribute `output_layer`")
        if node.attr == "mtp":
            return Ref("instance", layout.MTP_BLOCK, False, "the attribute `mtp`")
        return None

    def _on_Call(self, node: ast.Call, scope: Scope, block: Block, line: int) -> Ref | None:
        text = path_text(node.func) or ""
        leaf = text.rpartition(".")[2] or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        first = node.args[0] if node.args else None
        constant = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        if text == "type" and len(node.args) == 1:
            ref = self.expr(first, scope, block, line)
            return ref.but(kind="class") if ref and ref.kind == "instance" else None
        if text == "getattr" and len(node.args) > 1:
            return self._getattr(node, scope, block, line)
        if leaf in {"import_module", "__import__"} and constant:
            return self._module(constant)
        if text == "sys.modules.get" and constant:
            return self._module(constant)
        if leaf == "cast" and len(node.args) == 2:
            return self._annotation(first, scope, block, line)
        if leaf == "build_schedule_plan":
            return Ref("instance", layout.SCHEDULE_PLAN, False, "made by `build_schedule_plan`")
        if leaf in UNWRAPPERS and first is not None:
            return self._unwrapped(node, scope, block, line)
        if leaf in PASS_THROUGH_CALLS and first is not None:
            return self.expr(first, scope, block, line)
        if isinstance(node.func, ast.Attribute) and leaf in PASS_THROUGH_METHODS:
            return self.expr(node.func.value, scope, block, line)
        called = self._inherited(node, scope) or self.expr(node.func, scope, block, line)
        if called is None:
            return None
        if called.kind == "class":
            return called.but(kind="instance", why=f"constructed on line {node.lineno}")
        if called.kind == "local-function" and called.home is not None:
            return called.home.returned(called.node)
        return None

    def _inherited(self, node: ast.Call, scope: Scope) -> Ref | None:
        """`super().name(...)`: the method of one of the class's own bases."""
        func = node.func
        if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call)):
            return None
        if path_text(func.value.func) != "super":
            return None
        function = scope.function
        owner = function.parent if function else None
        if owner is None or not isinstance(owner.node, ast.ClassDef):
            return None
        return next((m for base in self.own_bases(owner.node) if (m := self._own_method(base, func.attr))), None)

    def _getattr(self, node: ast.Call, scope: Scope, block: Block, line: int) -> Ref | None:
        name = node.args[1]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            attribute = ast.Attribute(node.args[0], name.value, ast.Load())
            ast.copy_location(attribute, node)
            return self.expr(attribute, scope, block, line)
        return None

    def _unwrapped(self, node: ast.Call, scope: Scope, block: Block, line: int) -> Ref | None:
        inner = self.expr(node.args[0], scope, block, line)
        if inner and inner.is_core and inner.kind == "instance":
            if inner.name in {layout.DATA_PARALLEL, layout.FLOAT16_MODULE}:
                return Ref("instance", layout.GPT_MODEL, False, "an unwrapped Megatron model")
            return inner
        function = self.expr(node.func, scope, block, line)
        foreign = function is not None and function.kind == "external" and not function.name.startswith("megatron")
        if foreign or not self.related:
            return None
        return Ref("instance", layout.GPT_MODEL, False, "the result of `unwrap_model`")

    def returned(self, node: ast.AST | None) -> Ref | None:
        """What a function of this module returns: its annotation, else the first return that resolves."""
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        scope = self.model.functions.get(node)
        if scope is None or scope.parent is None:
            return None
        key = (id(node), -2)
        if key in self._active:
            return None
        self._active.add(key)
        try:
            if node.returns is not None:
                ref = self._annotation(node.returns, scope.parent, scope.parent.block, node.lineno)
                if ref and ref.is_core:
                    return ref
            for statement, block in self.model.returns.get(node, []):
                ref = self.expr(statement.value, scope, block, statement.lineno)
                if ref and ref.is_core:
                    return ref
        finally:
            self._active.discard(key)
        return None

    def _on_Subscript(self, node: ast.Subscript, scope: Scope, block: Block, line: int) -> Ref | None:
        if path_text(node.value) == "sys.modules":
            key = self.string(node.slice, scope, block, line)
            return self._module(key) if key else None
        return self._item(node.value, scope, block, line)

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

    def _on_BoolOp(self, node: ast.BoolOp, scope: Scope, block: Block, line: int) -> Ref | None:
        return next((ref for value in node.values if (ref := self.expr(value, scope, block, line))), None)

    def _on_IfExp(self, node: ast.IfExp, scope: Scope, block: Block, line: int) -> Ref | None:
        return self.expr(node.body, scope, block, line) or self.expr(node.orelse, scope, block, line)

    def _on_NamedExpr(self, node: ast.NamedExpr, scope: Scope, block: Block, line: int) -> Ref | None:
        return self.expr(node.value, scope, block, line)

    def _on_Await(self, node: ast.Await, scope: Scope, block: Block, line: int) -> Ref | None:
        return self.expr(node.value, scope, block, line)

    def _on_ListComp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope, block: Block, line: int) -> Ref | None:
        if isinstance(node.elt, ast.Call):  # [unwrap_model(m) for m in models]
            return self.expr(node.elt, scope, block, line)
        return self._item(node.generators[0].iter, scope, block, line) if isinstance(node.elt, ast.Name) else None

    _on_GeneratorExp = _on_ListComp

    # --- strings -----------------------------------------------------------------------------------------------

    def string(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> str | None:
        """The one string an expression is known to be, or None."""
        values = self.strings(node, scope, block, line)
        return values[0] if len(values) == 1 else None

    def strings(self, node: ast.AST | None, scope: Scope, block: Block, line: int) -> list[str]:
        """Every string an expression is known to take: a constant, a constant name, a loop over constants."""
        if isinstance(node, ast.Constant):
            return [node.value] if isinstance(node.value, str) else []
        if isinstance(node, ast.Attribute) and node.attr == "__name__":
            ref = self.expr(node.value, scope, block, line)
            leaf = ref.name.rpartition(".")[2] if ref and ref.is_core else getattr(ref and ref.node, "name", "")
            return [leaf] if leaf else []
        if not isinstance(node, ast.Name):
            return []
        for home in scope.chain():
            for binding in reversed(home.bindings.get(node.id, [])):
                if binding.kind == "value":
                    return self.strings(binding.node, home, binding.block, binding.line)
                if binding.kind == "item":
                    elements = getattr(binding.node, "elts", None) or self._constant_elements(binding.node, home)
                    return [e.value for e in elements if isinstance(e, ast.Constant) and isinstance(e.value, str)]
            if node.id in home.bindings:
                return []
        return []

    def _constant_elements(self, node: ast.AST | None, scope: Scope) -> list[ast.expr]:
        if isinstance(node, ast.Name):
            for home in scope.chain():
                for binding in home.bindings.get(node.id, []):
                    if isinstance(binding.node, ast.Tuple | ast.List | ast.Set):
                        return binding.node.elts
        return []


def core_name(full: str) -> Ref:
    """A dotted name below `megatron.core`, known to the tables or not."""
    symbol = api.lookup(full)
    if symbol is not None:
        return Ref("value" if symbol.kind == "state" else symbol.kind, symbol.name)
    leaf = full.rpartition(".")[2]
    # Not in any release the tables know: classes are written in capitals, anything else could be whatever.
    kind = "class" if leaf[:1].isupper() and not leaf.isupper() else "value"
    return Ref(kind, full, why="a name the known releases do not have")


def _output_layer(why: str) -> Ref:
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


def _leaf(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr
