"""What a patch leans on: the function it replaces, and every name of Megatron Core that its own code uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.definitions import parameters, statement_digests
from mcore_unpatch.megatron.roots import within
from mcore_unpatch.scanner import detect
from mcore_unpatch.scanner.judging import replacement
from mcore_unpatch.scanner.judging.replacement import Replacement
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.related import restores
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources.scopes import FunctionNode

# A test around a use that asks for the very thing the use needs: what happens there is the author's decision.
_ASKS = re.compile(r"hasattr|version|signature|HAVE_|HAS_|mcore|import|\bis None\b|is not None")


_NAMED = {"function", "class", "value", "module"}


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a name of Megatron Core: the keywords and the number of positions of a call, None where it is none."""

    name: str
    path: str
    line: int
    keywords: tuple[str, ...] = ()
    positions: int | None = None
    open_ended: bool = False  # `*args` or `**kwargs` are passed on
    on_import: bool = False  # runs when the file is imported
    module: str = ""  # of an import: the module that is imported, or imported from

    @property
    def imported(self) -> bool:
        """Whether this is an import."""
        return bool(self.module)


@dataclass(frozen=True, slots=True)
class Leaning:
    """One patch, and what its code stands on."""

    install: Install = field(repr=False)
    new: Replacement = field(repr=False)
    uses: tuple[Use, ...]
    path: str = ""  # of the replacing function
    line: int = 0
    end_line: int = 0
    statements: bytes = b""
    signature: str = ""


def leanings(resolver: Resolver) -> dict[tuple[int, str], Leaning]:
    """The patches of one file by line and target."""
    installs = restores.split_restores(detect.collect(resolver), resolver)
    return {(getattr(install.node, "lineno", 0), install.target): _leaning(install, resolver) for install in installs}


def _leaning(install: Install, resolver: Resolver) -> Leaning:
    new = replacement.find(install, resolver)
    uses = [*_imports(resolver)]
    if new.function is None or new.home is None:
        return Leaning(install, new, tuple(uses))
    home = new.home
    if home is not resolver:
        uses += _imports(home)
    uses += _in_function(new.function, home, install, new.bound)
    digests = statement_digests(new.function) if isinstance(new.function, FunctionNode) else b""
    node = new.function
    return Leaning(
        install,
        new,
        tuple(dict.fromkeys(uses)),
        home.model.path,
        node.lineno,
        node.end_lineno or node.lineno,
        digests,
        parameters(node),
    )


def _imports(resolver: Resolver) -> Iterator[Use]:
    """What the import of the file itself needs: `from megatron.core... import ...` outside of any `try` and `if`."""
    for node in resolver.model.tree.body:
        yield from _imported(node, resolver.model.path, on_import=True)


def _imported(node: ast.AST, path: str, on_import: bool = False) -> Iterator[Use]:
    if isinstance(node, ast.ImportFrom) and not node.level and within(node.module or ""):
        for alias in node.names:
            yield Use(f"{node.module}.{alias.name}", path, node.lineno, on_import=on_import, module=node.module or "")
    elif isinstance(node, ast.Import):
        for alias in node.names:
            if within(alias.name):
                yield Use(alias.name, path, node.lineno, on_import=on_import, module=alias.name)


def _in_function(function: ast.AST, home: Resolver, install: Install, bound: bool) -> Iterator[Use]:
    path = home.model.path
    itself = _own_name(function) if bound and install.owner.rpartition(".")[2][:1].isupper() else None
    waiting: list[ast.AST] = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop(0)
        if _asks_first(node):
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from _imported(node, path)
        elif isinstance(node, ast.Call) and (name := _name(node.func, home, itself, install.owner)):
            given = tuple(keyword.arg for keyword in node.keywords if keyword.arg)
            is_open = len(given) < len(node.keywords) or any(isinstance(arg, ast.Starred) for arg in node.args)
            yield Use(name, path, node.lineno, given, len(node.args), is_open)
            waiting += [*node.args, *(keyword.value for keyword in node.keywords)]
            continue
        elif isinstance(node, ast.Attribute | ast.Name) and (name := _name(node, home, itself, install.owner)):
            yield Use(name, path, node.lineno)
            continue
        waiting += ast.iter_child_nodes(node)


def _asks_first(node: ast.AST) -> bool:
    if isinstance(node, ast.Try):
        caught = " ".join(ast.unparse(handler.type) if handler.type else "" for handler in node.handlers)
        return not caught.strip() or bool(re.search("Import|Module|Attribute|Exception", caught))
    return isinstance(node, ast.If | ast.IfExp) and bool(_ASKS.search(ast.unparse(node.test)))


def _own_name(function: ast.AST) -> str | None:
    spec: ast.arguments = function.args  # type: ignore[attr-defined]
    first = (spec.posonlyargs + spec.args)[:1]
    return first[0].arg if first else None


def _name(node: ast.expr, home: Resolver, itself: str | None, owner: str) -> str | None:
    """The dotted name of Megatron Core that an expression reads."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == itself:
        return f"{owner}.{node.attr}" if api.has_callable(owner, node.attr) else None
    if not isinstance(getattr(node, "ctx", None), ast.Load):
        return None
    ref = home.expr(node, *home.model.at(node.lineno), node.lineno)
    if ref is None or not ref.is_core or ref.node is not None or not ref.sure or ref.kind not in _NAMED:
        return None
    return ref.name
