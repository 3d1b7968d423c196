"""The function a patch puts in place: where it is defined, what it takes, and what its body deals with."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from mcore_unpatch.library.syntax import Nodes, given_counts
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.shapes.install import Install, function_in, returned_by
from mcore_unpatch.scanner.sources.effort import Exhausted
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode, path_text

# What code at the output boundary speaks of, and Megatron's own forward and _postprocess do not.
OUTPUT_WORDS = re.compile(
    r"log_?probs?\b|logp\b|entropy|linear_?ce|fused_?ce|lm_loss\b|temperature|fused_linear|topk_logits", re.IGNORECASE
)
VALUE_WORDS = re.compile(r"value|critic|reward|score|classif|num_labels|LastLayer|v_head|token_class", re.IGNORECASE)
_MOST_STEPS = 50_000  # for what one function calls


@dataclass(eq=False)
class Replacement:
    """What is known of the replacing function; `function` is None when it could not be found."""

    function: FunctionNode | ast.Lambda | None = None
    words: frozenset[str] = frozenset()
    home: Resolver | None = None  # of the file the function stands in, or else the patch

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The function and all that is in it."""
        return list(walk(self.function)) if self.function is not None else []

    # Many patches may put the same function in place: it is walked once for all of them.

    @cached_property
    def names_read(self) -> dict[str, list[ast.expr]]:
        """Where it reads each name."""
        return _grouped((n.id, n) for n in self.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))

    @cached_property
    def attributes_read(self) -> dict[str, list[ast.expr]]:
        """Where it reads each attribute."""
        return _grouped((n.attr, n) for n in self.nodes if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load))

    @cached_property
    def calls(self) -> list[ast.Call]:
        """The calls that stand in it."""
        return [node for node in self.nodes if isinstance(node, ast.Call)]

    @cached_property
    def helpers(self) -> list[tuple[ast.Call, Replacement]]:
        """The functions of the repository that it calls, with the calls."""
        home = self.home
        if home is None:
            return []
        try:
            with home.project.effort.at_most(_MOST_STEPS):
                called = [(call, home.on_line(call.lineno).expr(call.func)) for call in self.calls]
        except Exhausted:
            return []
        return [
            (call, of_function(ref.node, ref.home))
            for call, ref in called
            if ref is not None and ref.home is not None and isinstance(ref.node, FunctionNode)
            if ref.node is not self.function
        ]

    @cached_property
    def returned_calls(self) -> list[tuple[int, ast.Call]]:
        """The calls whose results it returns itself, and the lines of those returns."""
        returns = Nodes([self.function]).own.of(ast.Return) if isinstance(self.function, FunctionNode) else ()
        return [(node.lineno, node.value) for node in returns if isinstance(node.value, ast.Call)]

    @cached_property
    def written(self) -> frozenset[str]:
        """The attributes and items it assigns to, as paths; `?` for those that are not told."""
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
                found.add(path_text(node) or "?")
            elif isinstance(node, ast.Call) and path_text(node.func) == "setattr":
                found.add("?")
        return frozenset(found)

    @cached_property
    def head_line(self) -> int:
        """Where it puts another `forward` into an output layer; 0 where it does not."""
        layers = [node for node in self.nodes if isinstance(node, ast.Assign) and _is_head(node.value)]
        names = {target.id for node in layers for target in node.targets if isinstance(target, ast.Name)}
        for node in self.nodes:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Attribute) and target.attr == "forward":
                    if _is_head(target.value) or path_text(target.value) in names:
                        return target.lineno
        return 0

    @cached_property
    def strings(self) -> frozenset[str]:
        """The strings that stand in it."""
        return frozenset(n.value for n in self.nodes if isinstance(n, ast.Constant) and isinstance(n.value, str))

    @cached_property
    def returns_its_input(self) -> bool:
        """A passthrough: what it returns is what it was given, the hidden states."""
        if self.function is None:
            return False
        arguments = self.function.args
        names = {arg.arg for arg in [*arguments.posonlyargs, *arguments.args]} - {"self"}
        if arguments.vararg:
            names.add(arguments.vararg.arg)
        if isinstance(self.function, ast.Lambda):
            return first_value(self.function.body) in names
        names = handed_on(self.function, names)
        returns = [node.value for node in self.nodes if isinstance(node, ast.Return)]
        return any(first_value(value) in names for value in returns if value is not None)

    @cached_property
    def returned_counts(self) -> frozenset[int]:
        """How many values its `return a, b` statements give; 0 stands for one that is not evident."""
        return given_counts(self.function) if self.function is not None else frozenset({0})


def _grouped(pairs: Iterable[tuple[str, ast.expr]]) -> dict[str, list[ast.expr]]:
    groups: dict[str, list[ast.expr]] = {}
    for name, node in pairs:
        groups.setdefault(name, []).append(node)
    return groups


def _is_head(node: ast.expr) -> bool:
    """`x.output_layer`, also by `getattr`."""
    if isinstance(node, ast.Call) and path_text(node.func) == "getattr" and len(node.args) > 1:
        return isinstance(node.args[1], ast.Constant) and node.args[1].value == "output_layer"
    return isinstance(node, ast.Attribute) and node.attr == "output_layer"


def first_value(value: ast.expr) -> str | None:
    """The name behind `hidden.contiguous()`, `args[0]`, `gather(hidden).to(dtype)`, the first of a tuple."""
    if isinstance(value, ast.Tuple) and value.elts:
        value = value.elts[0]
    while isinstance(value, ast.Call | ast.Attribute | ast.Subscript):
        if isinstance(value, ast.Call) and value.args and "gather" in (path_text(value.func) or ""):
            value = value.args[0]
        else:
            value = value.func if isinstance(value, ast.Call) else value.value
    return value.id if isinstance(value, ast.Name) else None


def handed_on(function: ast.AST, names: set[str]) -> set[str]:
    """The names, and the locals that hold what they do, gathered or cast at most."""
    assignments = [node for node in walk(function) if isinstance(node, ast.Assign)]
    for _ in range(3):  # a local of a local of a local
        holding = [node for node in assignments if first_value(node.value) in names]
        names = names | {target.id for node in holding for target in node.targets if isinstance(target, ast.Name)}
    return names


def find(install: Install, resolver: Resolver) -> Replacement:
    """The function behind the value of a patch."""
    value, decorated = install.value, install.site.decorated
    function, home = function_in(value, resolver.at(install.site))
    if isinstance(decorated, FunctionNode) and isinstance(value, ast.Name) and value.id == decorated.name:
        function, home = decorated, resolver  # it stands below the decorator that installs it
    elif install.shape == "string-target" and isinstance(function, FunctionNode) and not isinstance(value, ast.Call):
        takes_one = len([*function.args.posonlyargs, *function.args.args]) == 1 and function.args.vararg is None
        made = returned_by(function, home) if takes_one else (None, home)
        inner = {node.name for node in function.body if isinstance(node, FunctionNode)}
        given = (node for _, call in of_function(function, home).returned_calls for node in call.args)
        if made[0] is not None:
            function, home = made  # a registry hands it the original
        elif takes_one and any(isinstance(node, ast.Name) and node.id in inner for node in given):
            function = None  # what another makes of its own
    if install.named:
        node, home = named_definition(install, resolver)
        function = node if isinstance(node, FunctionNode) else None
    if function is not None:
        return of_function(function, home)
    words = _words(value) if value is not None else frozenset()
    return resolver.kept((Replacement, value), lambda: Replacement(words=words, home=resolver))


def of_function(function: FunctionNode | ast.Lambda, home: Resolver) -> Replacement:
    """What is known of a function of a file."""
    return home.kept((Replacement, function), lambda: Replacement(function, _words(function), home))


def named_definition(install: Install, resolver: Resolver) -> tuple[ast.AST | None, Resolver]:
    """The definition of the repository that a text names."""
    module, _, name = install.named.rpartition(".")
    home = resolver.find(module)
    if home is None and module.rpartition(".")[2] == resolver.model.path.rpartition("/")[2].removesuffix(".py"):
        home = resolver  # the file itself
    bindings = home.model.scope.bindings.get(name, ()) if home is not None else ()
    return next((binding.node for binding in bindings if binding.kind in ("def", "class")), None), home or resolver


def _words(node: ast.AST) -> frozenset[str]:
    words: set[str] = set()
    for item in walk(node):
        if isinstance(item, ast.Name):
            words.add(item.id)
        elif isinstance(item, ast.Attribute):
            words.add(item.attr)
        elif isinstance(item, ast.arg | ast.keyword) and item.arg:
            words.add(item.arg)
        elif isinstance(item, ast.FunctionDef):
            words.add(item.name)
    return frozenset(words)
