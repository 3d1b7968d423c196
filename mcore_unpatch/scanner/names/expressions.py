"""What an expression stands for: attributes, calls, subscripts, and the members of Megatron's classes."""

from __future__ import annotations

import ast

from mcore_unpatch.megatron import api, layout
from mcore_unpatch.scanner.names.bindings import Bindings, core_name, output_layer
from mcore_unpatch.scanner.names.resolver import Ref
from mcore_unpatch.scanner.sources.scopes import Binding, Block, FunctionNode, Scope, path_text

PASS_THROUGH_METHODS = {"to", "cuda", "cpu", "eval", "train", "half", "bfloat16", "float", "requires_grad_", "copy"}
PASS_THROUGH_CALLS = {"list", "tuple", "reversed", "iter", "next", "sorted", "set", "copy", "deepcopy"}
UNWRAPPERS = {"unwrap_model", "unwrap_module", "unwrap_megatron_model", "unwrap_ddp"}


class Expressions(Bindings):
    """Resolves expressions of one module: to things of Megatron Core, or to the strings they can be."""

    def _on_Attribute(self, node: ast.Attribute, scope: Scope, block: Block, line: int) -> Ref | None:
        if text := path_text(node):
            _, ref = self._lookup(text, scope, block, line)
            if ref:
                return ref
        base = self.expr(node.value, scope, block, line)
        if base is not None and (ref := self.member(base, node.attr)):
            return ref
        if base is not None and base.kind in {"class", "instance"} and not base.is_core:
            return None
        return self._well_known(node)

    def member(self, base: Ref, name: str) -> Ref | None:
        """What `base.name` stands for."""
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
                if (
                    base.home is not None
                    and base.node is not None
                    and (ref := base.home.own_attribute(base.node, name))
                ):
                    return ref
                if base.is_core and name == "__dataclass_fields__":
                    return Ref("fields", base.name)
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
            if ref := base.home.own_attribute(base.node, name):
                return ref
            if method := self._own_method(base, name):
                if _is_property(method.node):
                    assert method.home is not None
                    return method.home.returned(method.node)
                return method.but(bound=True)
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
            return Ref(
                "instance",
                "megatron.core.transformer.module.MegatronModule",
                False,
                base.why,
                via=f"{base.name}.{name}",
            )
        if name in {"module", "language_model"} and api.is_model(base.name):
            return Ref("instance", layout.GPT_MODEL, False, f"`.{name}` of a Megatron model")
        if api.has_callable(base.name, name):
            return Ref("function", f"{base.name}.{name}", base.sure, base.why, bound=True)
        if name == "mtp" and api.is_model(base.name):
            return Ref("instance", layout.MTP_BLOCK, base.sure, base.why)
        if kept := api.attribute_class(base.name, name):
            return Ref("instance", kept, base.sure, base.why)
        return None

    def _own_method(self, base: Ref, name: str) -> Ref | None:
        """A method that a class of the repository, or one of its own bases, defines."""
        if base.home is None or not isinstance(base.node, ast.ClassDef):
            return None
        return base.home.own_method(base.node, name)

    def own_method(self, node: ast.ClassDef, name: str) -> Ref | None:
        """A method that a class of this module, or one of the repository's own bases of it, defines."""
        return self._answer(("method", node, name), self._find_method, node, name)

    def _find_method(self, node: ast.ClassDef, name: str) -> Ref | None:
        if item := self.once(methods, node).get(name):
            return Ref("local-function", home=self, node=item)
        return next((found for base in self.own_bases(node) if (found := self._own_method(base, name))), None)

    def own_bases(self, node: ast.ClassDef) -> list[Ref]:
        """The bases of a class of this module that the repository defines."""
        scope = self.model.classes[node].parent
        assert scope is not None
        refs = [self.expr(base, scope, scope.block, node.lineno) for base in node.bases]
        return [ref for ref in refs if ref is not None and ref.kind == "class" and ref.home is not None]

    def own_attribute(self, node: ast.AST, name: str) -> Ref | None:
        """`self.name` of a class of this module: what its methods assign, or what the class body annotates."""
        return self._answer(("attribute", node, name), self._find_attribute, node, name)

    def _find_attribute(self, node: ast.ClassDef, name: str) -> Ref | None:
        scope = self.model.classes[node]
        for binding in reversed(scope.bindings.get(name, [])):
            if binding.kind != "def" and (ref := self.bound(binding, scope)):
                return ref
        for binding, method in self.once(self._assigned_to_self, node).get(name, ()):
            if ref := self.bound(binding, method):
                return ref
        for base in self.own_bases(node):
            if base.home is not None and base.node is not None and (ref := base.home.own_attribute(base.node, name)):
                return ref
        return None

    def _assigned_to_self(self, node: ast.ClassDef) -> dict[str, list[tuple[Binding, Scope]]]:
        """What the methods of a class assign to `self.name`, by name."""
        found: dict[str, list[tuple[Binding, Scope]]] = {}
        scopes = [self.model.functions[item] for item in node.body if item in self.model.functions]
        for scope in scopes:
            for path, bindings in scope.bindings.items():
                if path.startswith("self."):
                    assigned = [(binding, scope) for binding in bindings if binding.kind in {"value", "annotation"}]
                    found.setdefault(path.removeprefix("self."), []).extend(assigned)
        return found

    def _well_known(self, node: ast.Attribute) -> Ref | None:
        """Attributes only Megatron's models have, on an object nothing else is known of."""
        if not self.related:
            return None
        if node.attr == "output_layer":
            return output_layer("the attribute `output_layer`")
        if node.attr == "mtp":
            return Ref("instance", layout.MTP_BLOCK, False, "the attribute `mtp`")
        return None

    def _on_Call(self, node: ast.Call, scope: Scope, block: Block, line: int) -> Ref | None:
        text = self.called(node, scope, block, line)
        leaf = text.rpartition(".")[2] or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
        first = node.args[0] if node.args else None
        constant = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else None
        if text == "type" and len(node.args) == 1:
            ref = self.expr(first, scope, block, line)
            return ref.but(kind="class") if ref and ref.kind == "instance" else None
        if text == "getattr" and len(node.args) > 1:
            return self._getattr(node, scope, block, line)
        if first is not None and (leaf in {"import_module", "__import__"} or text == "sys.modules.get"):
            names = self._absolute(node, self.strings(first, scope, block, line), scope, block, line)
            if leaf == "__import__" and len(node.args) < 4 and not any(k.arg == "fromlist" for k in node.keywords):
                names = [name.partition(".")[0] for name in names]
            return self._modules(names)
        if leaf == "resolve_name" and constant:
            return self._resolved(constant)
        if leaf == "cast" and len(node.args) == 2:
            return self._annotation(first, scope, block, line) or self.expr(node.args[1], scope, block, line)
        if leaf == "build_schedule_plan":
            return Ref("instance", layout.SCHEDULE_PLAN, False, "the result of `build_schedule_plan`")
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
            return called.but(kind="instance", why=f"its construction on line {node.lineno}")
        if called.kind == "local-function" and called.home is not None:
            return called.home.returned(called.node)
        if called.kind == "function" and (made := api.result_class(called.name)):
            return Ref("instance", made, called.sure, called.why or f"what `{leaf}` returns")
        return None

    def called(self, node: ast.Call, scope: Scope, block: Block, line: int) -> str:
        """What a call calls, as it is written; by its own name where it was imported under another."""
        text = path_text(node.func) or ""
        if isinstance(node.func, ast.Name) and any(b.kind == "from" for b in self._bindings(node.func.id, scope)):
            ref = self.expr(node.func, scope, block, line)
            if ref is not None and ref.kind == "external":
                return ref.name.removeprefix("builtins.")
        return text

    def _bindings(self, name: str, scope: Scope) -> list[Binding]:
        return next((home.bindings[name] for home in scope.chain() if name in home.bindings), [])

    def _absolute(self, node: ast.Call, names: list[str], scope: Scope, block: Block, line: int) -> list[str]:
        """The modules of `import_module(".utils", package="megatron.core")`."""
        given = [keyword.value for keyword in node.keywords if keyword.arg == "package"] or node.args[1:2]
        packages = self.strings(given[0], scope, block, line) if given else []
        whole = []
        for name in names:
            dots = len(name) - len(name.lstrip("."))
            above = [package.rsplit(".", dots - 1)[0] for package in packages] if dots else [""]
            whole += [f"{one}.{name[dots:]}".strip(".") for one in above]
        return whole

    def _modules(self, names: list[str]) -> Ref | None:
        """The module of a name; of several, the first of Megatron's with the others."""
        refs = [ref for name in names if (ref := self._module(name)) is not None]
        core = [ref for ref in refs if ref.is_core]
        return core[0].but(also=tuple(ref.name for ref in core[1:])) if core else next(iter(refs), None)

    def _resolved(self, name: str) -> Ref | None:
        """`pkgutil.resolve_name("package.module:Class")`."""
        module, _, path = name.partition(":")
        ref = self._module(module)
        for part in filter(None, path.split(".")):
            ref = self.member(ref, part) if ref is not None else None
        return ref

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
        found: list[Ref] = []
        names = self.strings(node.args[1], scope, block, line)
        for name in names:
            attribute = ast.Attribute(node.args[0], name, ast.Load())
            ast.copy_location(attribute, node)
            ref = self.expr(attribute, scope, block, line)
            if ref is not None and (len(names) == 1 or (ref.sure and api.lookup(ref.name) is not None)):
                found.append(ref)
        if found:
            alike = [one.name for one in found[1:] if one.is_core and one.kind == found[0].kind]
            return found[0].but(also=(*found[0].also, *alike)) if alike else found[0]
        return self.expr(node.args[2], scope, block, line) if len(node.args) == 3 else None

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
        return self._answer(node, self._returned, node)

    def _returned(self, node: FunctionNode) -> Ref | None:
        scope = self.model.functions.get(node)
        if scope is None or scope.parent is None:
            return None
        if node.returns is not None:
            ref = self._annotation(node.returns, scope.parent, scope.parent.block, node.lineno)
            if ref and ref.is_core:
                return ref
        return self._either(
            [(one.value, scope, block, one.lineno) for one, block in self.model.returns.get(node, []) if one.value]
        )

    def _on_Subscript(self, node: ast.Subscript, scope: Scope, block: Block, line: int) -> Ref | None:
        if path_text(node.value) == "sys.modules":
            key = self.string(node.slice, scope, block, line)
            return self._module(key) if key else None
        held = self.expr(node.value, scope, block, line)
        if held is not None and held.kind == "fields":
            name = self.string(node.slice, scope, block, line)
            return Ref("field", f"{held.name}.{name}") if name else None
        return self._item(node.value, scope, block, line)

    def _on_BoolOp(self, node: ast.BoolOp, scope: Scope, block: Block, line: int) -> Ref | None:
        return self._either([(value, scope, block, line) for value in node.values])

    def _on_IfExp(self, node: ast.IfExp, scope: Scope, block: Block, line: int) -> Ref | None:
        return self._either([(value, scope, block, line) for value in (node.body, node.orelse)])

    def _either(self, places: list[tuple[ast.expr, Scope, Block, int]]) -> Ref | None:
        """The first that is Megatron's, or the first of which anything is known."""
        first = None
        for place in places:
            ref = self.expr(*place)
            if ref is not None and ref.is_core:
                return ref
            first = first or ref
        return first

    def _on_List(self, node: ast.List, scope: Scope, block: Block, line: int) -> Ref | None:
        """A list of models is taken for the model itself."""
        return self._item(node, scope, block, line)

    def _on_NamedExpr(self, node: ast.NamedExpr, scope: Scope, block: Block, line: int) -> Ref | None:
        return self.expr(node.value, scope, block, line)

    def _on_Await(self, node: ast.Await, scope: Scope, block: Block, line: int) -> Ref | None:
        return self.expr(node.value, scope, block, line)

    def _on_ListComp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope, block: Block, line: int) -> Ref | None:
        if isinstance(node.elt, ast.Call):  # [unwrap_model(m) for m in models]
            return self.expr(node.elt, scope, block, line)
        return self._item(node.generators[0].iter, scope, block, line) if isinstance(node.elt, ast.Name) else None

    _on_GeneratorExp = _on_ListComp


def _is_property(node: ast.AST | None) -> bool:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return any((path_text(one) or "").rpartition(".")[2] in {"property", "cached_property"} for one in decorators)


def methods(node: ast.ClassDef) -> dict[str, FunctionNode]:
    """The methods in the body of a class by name, the first of each."""
    found: dict[str, FunctionNode] = {}
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            found.setdefault(item.name, item)
    return found
