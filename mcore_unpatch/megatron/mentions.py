"""What a Python file may read of other modules' names: imports, attributes, texts.

Made to prove that nobody reads a name, so it says too much rather than too little: scopes are not looked at, and an
object of which no import tells what it is may be any module.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from mcore_unpatch.library.syntax import source_of
from mcore_unpatch.megatron import api
from mcore_unpatch.megatron.roots import within

EVERYTHING = "*"
_SELF = "self"
_WORD = re.compile(r"[^\W\d]\w*")
_ASKING = {"getattr", "hasattr"}


@dataclass(slots=True)
class Mentions:
    """What one file says. An object is its dotted name where an import tells, else the empty string."""

    names: set[str] = field(default_factory=set)  # plain ones that are read
    imported: set[tuple[str, str]] = field(default_factory=set)  # module and name
    attributes: set[tuple[str, str]] = field(default_factory=set)  # object and name
    values: set[str] = field(default_factory=set)  # imported objects that are handed on as they are
    texts: set[str] = field(default_factory=set)  # words of texts that are no sentences
    sentences: set[str] = field(default_factory=set)  # words of the others, docstrings apart
    runs_texts: bool = False  # exec, eval, the source of a function

    def may_read(self, owner: str, name: str) -> bool:
        """Whether the code of a file outside of Megatron may read a name of a module or a class of Megatron's."""
        if owner.rpartition(".")[2][:1].isupper():  # whatever the object, it may be one of that class
            return any(attribute == name for _, attribute in self.attributes)
        module = owner
        if not self.imported.isdisjoint({(module, name), (module, EVERYTHING)}):
            return True
        return any(
            (attribute == name and of != _SELF and (not within(of) or _is(of, module)))
            or (attribute in (EVERYTHING, "__dict__") and _is(of, module))
            for of, attribute in self.attributes
        )

    def may_hand_on(self, module: str) -> bool:
        """Whether the module may reach code that takes a name from it by a text."""
        return self.names_in_text(module.rpartition(".")[2]) or any(_is(of, module) for of in self.values if within(of))

    def names_in_text(self, word: str) -> bool:
        """Whether a text says a word: one that is no sentence, unless texts are run as code."""
        return word in self.texts or (self.runs_texts and word in self.sentences)


def _is(name: str, module: str) -> bool:
    """Whether a dotted name stands for a module; one that no release has may, where it ends alike."""
    known = api.lookup(name)
    return known.name == module if known else name.rpartition(".")[2] == module.rpartition(".")[2]


def mentions(tree: ast.Module, package: str = "") -> Mentions:
    """What a file says; `package` is what its relative imports start from."""
    found = Mentions()
    bound = defaultdict[str, set[str]](set)
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]].add(
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            source = source_of(node, package)
            for alias in node.names:
                found.imported.add((source, alias.name))
                bound[alias.asname or alias.name].add(f"{source}.{alias.name}")
    skipped = set(_no_texts(nodes))
    objects: set[int] = set()  # what an attribute is read from
    for node in nodes:
        match node:
            case ast.Attribute(value=value, attr=name):
                objects.add(id(value))
                if not isinstance(node.ctx, ast.Store):
                    found.attributes |= {(of, name) for of in _objects(value, bound)}
                    found.runs_texts |= name == "getsource"
            case ast.Call(func=ast.Name(id=function), args=[of, name, *_]) if function in _ASKING:
                objects.add(id(of))
                asked = name.value if isinstance(name, ast.Constant) else EVERYTHING
                found.attributes |= {(each, str(asked)) for each in _objects(of, bound)}
            case ast.Name(id=name) if not isinstance(node.ctx, ast.Store):
                found.names.add(name)
                found.runs_texts |= name in ("exec", "eval", "compile", "getsource")
            case ast.Global(names=names):
                found.names |= set(names)
            case ast.Constant(value=str(text)) if id(node) not in skipped:
                plain = not any(map(str.isspace, text.strip())) or "import" in text
                (found.texts if plain else found.sentences).update(_WORD.findall(text))
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in objects:
            found.values |= {of for of in _objects(node, bound) if of}
    return found


def _objects(node: ast.expr, bound: dict[str, set[str]]) -> Iterator[str]:
    """What an expression may be."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in bound:
        is_self = not parts and isinstance(node, ast.Name) and node.id in ("self", "cls")
        yield _SELF if is_self else ""
        return
    for start in bound[node.id]:
        yield ".".join([start, *parts])


def _no_texts(nodes: list[ast.AST]) -> Iterator[int]:
    """Docstrings and `__all__`: what they name is read by nobody."""
    for node in nodes:
        match node:
            case ast.Expr(value=ast.Constant() as constant):
                yield id(constant)
            case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.AugAssign(target=ast.Name(id="__all__")):
                yield from (id(one) for one in ast.walk(node.value))
