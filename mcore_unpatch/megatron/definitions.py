"""What a release of Megatron Core defines, read from its source: each function, method, class and module name."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from mcore_unpatch.codemods.fingerprints.normalise import fingerprint, nesting, parts
from mcore_unpatch.megatron.roots import PACKAGES

DIGEST_BYTES = 4  # enough to tell that something changed, and a third less to ship
STATEMENT_BYTES = 2
_PACKAGE = "megatron"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Definition:
    """One name of one release.

    kind: module, class, function (methods too), value (an assignment of a module or class body), attribute (what the
    methods of a class set on `self`), or import.
    signature: the parameter list of a function, the bases of a class as written, the dotted name of an import.
    digest: of the normalised body, where comments, docstrings and annotations do not count.
    statements: two bytes of digest per statement of a function, to tell how near a copy is.
    nesting: a byte per statement, how it stands in the blocks around it.
    """

    kind: str
    signature: str = ""
    digest: bytes = b""
    statements: bytes = b""
    nesting: bytes = b""


Snapshot = Mapping[str, Definition]


class SourceNames(Snapshot):
    """The definitions of Megatron's packages below a folder, read module by module as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._nodes: dict[str, dict[str, ast.AST]] = {}
        self._known: dict[str, Definition] = {}
        if not (folder / "megatron" / "core").is_dir():
            raise FileNotFoundError(folder / "megatron" / "core")

    def __getitem__(self, name: str) -> Definition:
        parts = name.split(".")
        for length in range(len(parts), 1, -1):
            module = ".".join(parts[:length])
            if file := self._file(module):
                if name not in self._known:
                    node = self._read(module, file)[name]
                    self._known[name] = describe(name, node, module, file.name == "__init__.py")
                return self._known[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for module, file in module_files(self.folder):
            yield from self._read(module, file)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def source_file(self, name: str) -> Path | None:
        """The file that defines a name, or should."""
        parts = name.split(".")
        modules = (".".join(parts[:length]) for length in range(len(parts), 1, -1))
        return next(filter(None, map(self._file, modules)), None)

    def _file(self, module: str) -> Path | None:
        path = self.folder.joinpath(*module.split("."))
        return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)

    def _read(self, module: str, file: Path) -> dict[str, ast.AST]:
        if module not in self._nodes:
            self._nodes[module] = _nodes(file.read_bytes(), module)
        return self._nodes[module]


def module_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The modules of Megatron's packages below a folder."""
    for package in PACKAGES:
        for file in sorted(folder.joinpath(*package.split(".")).rglob("*.py")):
            names = file.relative_to(folder).with_suffix("").parts
            yield ".".join(names[:-1] if names[-1] == "__init__" else names), file


def read_release(folder: Path) -> dict[str, Definition]:
    """Every definition of Megatron's packages below a folder; raises `FileNotFoundError` without `megatron/core`."""
    return dict(SourceNames(folder))


def read_module(source: bytes, module: str, is_package: bool = False) -> dict[str, Definition]:
    """The definitions of one module by dotted name, the module itself among them."""
    return {name: describe(name, node, module, is_package) for name, node in _nodes(source, module).items()}


def _nodes(source: bytes, module: str) -> dict[str, ast.AST]:
    """The statement behind each name of a module; the module itself is the whole tree."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of Megatron's own strings
        tree = ast.parse(source)
    found: dict[str, ast.AST] = {module: tree}
    for name, node in definitions(tree.body, module):
        # `try: class X ... except ImportError: X = None`: the definition counts, not what stands in for it.
        if name not in found or _rank(name, node) > _rank(name, found[name]):
            found[name] = node
    return found


def _rank(name: str, node: ast.AST) -> int:
    if isinstance(node, ast.ClassDef) and node.name != name.rpartition(".")[2]:
        return 0  # an attribute of its instances
    return 2 if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) else 1


def definitions(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.stmt]]:
    """Every name that a module body binds, and the names its classes bind, with the statement that does it."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield f"{prefix}.{name}", node
            case ast.ClassDef(name=name):
                yield f"{prefix}.{name}", node
                yield from definitions(node.body, f"{prefix}.{name}")
                yield from ((f"{prefix}.{name}.{attribute}", node) for attribute in _own_attributes(node))
            case ast.Assign(targets=targets):
                yield from ((f"{prefix}.{target.id}", node) for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield f"{prefix}.{name}", node
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((f"{prefix}.{alias.asname or alias.name.partition('.')[0]}", node) for alias in names)
            case ast.If() | ast.With() | ast.Try():
                for block in ("body", "handlers", "orelse", "finalbody"):
                    for inner in getattr(node, block, []):
                        held = inner.body if isinstance(inner, ast.ExceptHandler) else [inner]
                        yield from definitions(held, prefix)


def _own_attributes(node: ast.ClassDef) -> list[str]:
    """The names that the methods of a class assign on `self`."""
    targets = (inner for method in node.body if isinstance(method, Function) for inner in ast.walk(method))
    return sorted(
        {
            target.attr
            for target in targets
            if isinstance(target, ast.Attribute) and isinstance(target.ctx, ast.Store)
            if isinstance(target.value, ast.Name) and target.value.id == "self" and target.attr != node.name
        }
    )


def parameters(function: Function | ast.Lambda) -> str:
    """The parameter list as one line: names, `=` behind a defaulted one, `/`, `*`, `*name` and `**name` as written."""
    spec = function.args
    positional = [*spec.posonlyargs, *spec.args]
    first_default = len(positional) - len(spec.defaults)
    words = [arg.arg + ("=" if index >= first_default else "") for index, arg in enumerate(positional)]
    if spec.posonlyargs:
        words.insert(len(spec.posonlyargs), "/")
    if spec.vararg:
        words.append(f"*{spec.vararg.arg}")
    elif spec.kwonlyargs:
        words.append("*")
    words += [a.arg + ("=" if d else "") for a, d in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)]
    if spec.kwarg:
        words.append(f"**{spec.kwarg.arg}")
    return " ".join(words)


def statement_digests(function: ast.stmt) -> bytes:
    """The digests of the statements of a function, its head left out: a copy may have another name."""
    return bytes.fromhex("".join(part.hash[: 2 * STATEMENT_BYTES] for part in parts(function, _PACKAGE)[1:]))


def digest(node: ast.stmt) -> bytes:
    """The digest of a whole definition."""
    return bytes.fromhex(fingerprint(node, _PACKAGE))[:DIGEST_BYTES]


def describe(name: str, node: ast.AST, module: str, is_package: bool) -> Definition:
    """What a statement of a module says of a name that it binds."""
    leaf = name.rpartition(".")[2]
    match node:
        case ast.Module():
            return Definition("module")
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            return Definition("function", parameters(node), digest(node), statement_digests(node), nesting(node)[1:])
        case ast.ClassDef() if node.name != leaf:
            return Definition("attribute")
        case ast.ClassDef():
            return Definition("class", " ".join(ast.unparse(base) for base in node.bases), digest(node))
        case ast.Import(names=names):
            return Definition("import", next((alias.name for alias in names if alias.asname == leaf), leaf))
        case ast.ImportFrom(names=names):
            original = next((alias.name for alias in names if (alias.asname or alias.name) == leaf), leaf)
            package = module if is_package else module.rpartition(".")[0]
            return Definition("import", f"{_source(node, package)}.{original}")
    assert isinstance(node, ast.stmt)
    return Definition("value", "", digest(node))


def _source(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")
    base = above[: len(above) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])
