"""What a patch does, told from the function that it puts in place: what the rows of answers ask for.

Most traits are words of the replacement; which words is the library's knowledge, and comes with the answers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.syntax import last_name, own_nodes, parameters, spelled
from mcore_unpatch.effects.originals import is_called_once
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.library.detailed import Detailed, How
from mcore_unpatch.library.interface import SymbolKind
from mcore_unpatch.patches.replacements import bound_to

Tells = Mapping[str, tuple[str, str]]
_MOST_DERIVED = 3  # a class that more derive from is too general for a spec to be the answer
_MODULES = ("Module",)


class Traits:
    """The traits of one patch, for the releases that it is judged on."""

    def __init__(self, case: Replaced, releases: Sequence[Detailed], tells: Tells) -> None:
        self.case, self.releases, self._tells = case, releases, tells
        self._library = case.names.library

    def has(self, trait: str) -> bool:
        """Whether a patch has a trait; `!name` is its opposite, `a|b` one of several."""
        if "|" in trait:
            return any(map(self.has, trait.split("|")))
        if trait.startswith("!"):
            return not self.has(trait[1:])
        if trait in _PLAIN:
            return bool(_PLAIN[trait](self))
        where, wanted = self._tells[trait]
        return _LOOKED[where](self, re.compile(wanted))

    def _says(self, trait: str) -> bool:
        where, wanted = self._tells[trait]
        return _LOOKED[where](self, re.compile(wanted))

    # -- what it says ------------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """The function and all that is in it."""
        return list(ast.walk(self.case.function)) if self.case.function is not None else []

    @cached_property
    def words(self) -> set[str]:
        """Names, attributes, parameters and keywords."""
        found = {last_name(node) for node in self.nodes if isinstance(node, (ast.Name, ast.Attribute))}
        found |= {node.arg for node in self.nodes if isinstance(node, (ast.arg, ast.keyword)) and node.arg}
        found |= {str(getattr(self.case.function, "name", ""))}
        return found

    @cached_property
    def writes(self) -> list[str]:
        """The attributes and items it assigns to, as paths; `?` for those that are not told."""
        targets = (node for node in self.nodes if isinstance(node, (ast.Attribute, ast.Subscript)))
        found = [spelled(node) or "?" for node in targets if isinstance(node.ctx, ast.Store)]
        return found + ["?" for node in self.nodes if isinstance(node, ast.Call) and last_name(node.func) == "setattr"]

    @cached_property
    def returned(self) -> list[ast.Call]:
        """The calls whose results it returns."""
        is_named = self.case.function is not None and not isinstance(self.case.function, ast.Lambda)
        returns = own_nodes(self.case.function, ast.Return) if is_named else []
        return [node.value for node in returns if isinstance(node.value, ast.Call)]

    @property
    def called(self) -> str:
        """What is called to make the value, or the value itself."""
        value = self.case.value
        return spelled(value.func if isinstance(value, ast.Call) else value)

    @property
    def installer(self) -> str:
        """The text of the function that installs the patch."""
        around = scope_of(self.case.patch.place).function()
        return ast.unparse(around.node) if around is not None else ""

    @cached_property
    def own_end(self) -> tuple[bool, bool]:
        """Whether it returns a call of its own, and what the original or its official end returns."""
        originals = {id(call) for call in self.case.originals.calls}
        back = re.compile(self._tells["hands-back"][1])
        is_back = [id(call) in originals or bool(back.search(last_name(call.func))) for call in self.returned]
        return False in is_back, True in is_back

    @property
    def hands_on_input(self) -> bool:
        """Whether what it returns is what it was given."""
        if self.case.function is None:
            return False
        names = {arg.arg for arg in parameters(self.case.function)} - {"self"}
        if isinstance(self.case.function, ast.Lambda):
            return _first_value(self.case.function.body) in names
        for node in own_nodes(self.case.function, ast.Assign):
            if _first_value(node.value) in names:
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        returns = own_nodes(self.case.function, ast.Return)
        return any(_first_value(node.value) in names for node in returns if node.value is not None)

    @property
    def only_multiplies(self) -> bool:
        """Whether it casts and multiplies, and does nothing else."""
        names = [last_name(node.func) for node in self.nodes if isinstance(node, ast.Call)]
        computed = any(isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult) for node in self.nodes)
        return bool(names) and not computed and all(re.search("linear|matmul|float", name) for name in names)

    # -- what it is put on -------------------------------------------------------------------------------------------

    @property
    def is_class(self) -> bool:
        """Whether a class is replaced as a whole."""
        symbol = self._library.symbol(self.case.target)
        return symbol is not None and symbol.kind == SymbolKind.CLASS

    @cached_property
    def in_specs(self) -> bool:
        """Whether the class that is replaced, or whose method is, can be named in a spec instead."""
        case, is_class = self.case, self.is_class
        name = case.target if is_class else case.owner
        slots = self.slots
        own = name.rpartition(".")[2]
        if is_class and case.attribute not in slots:
            return False  # those that derive from it have it from their import on
        if not is_class and all(release.has(release.name_of(name)) is False for release in self.releases):
            return False
        derived = [one for one in slots if one != own and name in slots[one][1]]
        return (own in slots or 0 < len(derived) <= _MOST_DERIVED) and not self._is_built_by_models(name)

    def _is_built_by_models(self, name: str) -> bool:
        """Whether a whole model builds the class by its name, where no spec reaches."""
        whole = set(self._library.lineage(self._library.whole())[:2])
        for release in self.releases:
            for use in (*release.uses(name), *release.uses(f"{name}.__init__")):
                built = use.how in (How.CALLED, How.EXACT)
                if built and whole.intersection(release.lineage(use.place.rpartition(".")[0])):
                    return True
        return False

    @cached_property
    def slots(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """The classes that specs of the judged releases name: their slots and their bases, by their short name."""
        found: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        for release in self.releases:
            for name, slots in release.in_specs.items():
                if slots or self.is_module_class(name):
                    found[name.rpartition(".")[2]] = (slots, tuple(release.lineage(name)[1:]))
        return found

    @property
    def is_slot(self) -> bool:
        """Whether a part of a layer is replaced that the spec of the layer names."""
        for base in self._library.lineage(self.case.owner):
            short = base.rpartition(".")[2]
            for holder in (f"{short}Submodules", f"{short.removesuffix('Layer')}Submodules"):
                module = base.rpartition(".")[0]
                if self._library.own_member(f"{module}.{holder}", self.case.attribute) is not None:
                    return True
        return False

    @property
    def passes_tests(self) -> bool:
        """Whether the library never asks for the class, or what takes its place derives from it."""
        symbol = self._library.symbol(self.case.target)
        name = symbol.name if symbol is not None else self.case.target
        if not any(use.how == How.ASKED for release in self.releases for use in release.uses(name)):
            return True
        made = self.case.patch.replacement
        return made is not None and any(one.name == name for one in self.case.names.lineage(made))

    def is_module_class(self, name: str) -> bool:
        """Whether a class is one of the framework's modules."""
        bases = (base.rpartition(".") for base in self._library.lineage(name))
        return any(leaf.endswith(_MODULES) or package.endswith("te.pytorch") for package, _, leaf in bases)

    @property
    def is_of_module(self) -> bool:
        """Whether it is put on a module, or on what one holds under a name."""
        owner = self.case.owner
        return self.is_module_class(owner) or self.is_module_class(owner.rpartition(".")[0])

    @property
    def is_on_object(self) -> bool:
        """Whether one object is changed: not by a function that nobody bound its `self`."""
        function = self.case.function
        first = parameters(function)[:1] if function is not None else []
        unbound = any(arg.arg == "self" for arg in first) and bound_to(self.case.value) is None
        return self.case.is_alone and not (unbound and self.case.value is not None)

    def runs_inside(self, kind: type[ast.AST]) -> bool:
        """Whether what it replaced is called in a `with`."""
        calls = {id(call) for call in self.case.originals.calls}
        blocks = [node for node in self.nodes if isinstance(node, kind)] if calls else []
        return any(id(node) in calls for block in blocks for node in ast.walk(block))

    @property
    def is_of_the_head(self) -> bool:
        """Whether the output layer of a model is changed: no spec names it."""
        return any(re.search(self._tells["head"][1], name) for name in self.case.held_as)

    @property
    def is_made_from_old(self) -> bool:
        """Whether what is put in place is given what it replaces: it wraps it, or takes its weights over."""
        value = self.case.value
        given = (node for node in ast.walk(value) if node is not value) if value is not None else ()
        return any(map(self.case.originals.stands_for, given))

    @property
    def lasts(self) -> bool:
        """Whether the newest release has the target too, or no release is known to."""
        newest = self.releases[-1].newest()
        return newest.has(self.case.target) is not False or not newest.ever(self.case.target)

    @property
    def has_own_name(self) -> bool:
        """Whether a name is added that nothing in the library has, to one of its classes."""
        library, name = self._library, self.case.attribute
        symbol = library.symbol(self.case.owner)
        is_class = symbol is not None and symbol.kind == SymbolKind.CLASS and ".extensions." not in self.case.owner
        if not is_class or name.startswith("__") or library.has_member(name):
            return False
        in_code = re.compile(rf"\.{name}\b|\b{name}\s*\(")  # of a text that may be put into the library's code
        nodes = ast.walk(self.case.patch.module.tree)
        said = (one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str))
        return not any(map(in_code.search, said))


def _first_value(value: ast.expr) -> str:
    """The name behind `hidden.contiguous()`, `args[0]`, the first of a tuple."""
    node: ast.expr = value.elts[0] if isinstance(value, ast.Tuple) and value.elts else value
    while isinstance(node, (ast.Call, ast.Attribute, ast.Subscript)):
        if isinstance(node, ast.Call):
            node = node.args[0] if node.args and "gather" in last_name(node.func) else node.func
        else:
            node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _any(texts: Callable[[Traits], Iterable[str]]) -> Callable[[Traits, re.Pattern[str]], bool]:
    return lambda of, wanted: any(map(wanted.search, texts(of)))


def _strings(of: Traits) -> Iterable[str]:
    return (node.value for node in of.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _calls(of: Traits) -> Iterable[str]:
    return (last_name(node.func) for node in of.nodes if isinstance(node, ast.Call))


def _head_writes(of: Traits) -> Iterable[str]:
    """What it writes, with what the names in it were read from."""
    read = {
        target.id: ast.unparse(node.value)
        for node in of.nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, (ast.Attribute, ast.Call))
    }
    for path in of.writes:
        root, _, rest = path.partition(".")
        yield f"{read.get(root, root)}.{rest}" if rest else path


def _turned_off(of: Traits) -> Iterable[str]:
    keywords = (word for call in of.case.originals.calls for word in call.keywords)
    return (str(one.arg) for one in keywords if isinstance(one.value, ast.Constant) and not one.value.value)


def _value(of: Traits) -> Iterable[str]:
    return [ast.unparse(of.case.value)] if of.case.value is not None else []


_LOOKED: dict[str, Callable[[Traits, re.Pattern[str]], bool]] = {
    "words": _any(lambda of: of.words),
    "strings": _any(_strings),
    "says": _any(lambda of: [*of.words, *_strings(of)]),
    "calls": _any(_calls),
    "value": _any(_value),
    "called": _any(lambda of: [of.called]),
    "module": _any(
        lambda of: [of.case.names.index.sources[home.path].decode(errors="replace") for home in of.case.homes[-1:]]
    ),
    "installer": _any(lambda of: [of.installer]),
    "every-write": lambda of, wanted: bool(of.writes) and all(map(wanted.search, of.writes)),
    "a-write": _any(_head_writes),
    "turns-off": _any(_turned_off),
    "returned": _any(lambda of: [last_name(call.func) for call in of.returned]),
}
_PLAIN: dict[str, Callable[[Traits], object]] = {
    "unknown": lambda of: of.case.function is None,
    "calls-nothing": lambda of: of.case.function is not None and not any(isinstance(n, ast.Call) for n in of.nodes),
    "delegates": lambda of: of.case.reaches_original,
    "calls-once": lambda of: is_called_once(of.case.function, of.case.originals.calls),
    "passthrough": lambda of: of.hands_on_input,
    "product": lambda of: of.only_multiplies,
    "no-loss": lambda of: of.case.function is not None and not of.case.reaches_original and not of._says("says-loss"),
    "own-end": lambda of: of._says("says-labels") and all(of.own_end),
    "passes-provider": lambda of: of._says("says-provider") and of.own_end == (False, True),
    "swaps-head": lambda of: of.case.reaches_original and any(
        path.endswith("forward") and re.search(of._tells["swaps-head"][1], path) for path in _head_writes(of)
    ),
    "remote-code": lambda of: of._says("remote-code") or of._says("remote-code-given"),
    "mtp-off": lambda of: of._says("clears-mtp") or of._says("mtp-off"),
    "removes-keys": lambda of: "pop" in of.words or any(isinstance(node, ast.Delete) for node in of.nodes),
    "class": lambda of: of.is_class,
    "in-specs": lambda of: of.in_specs,
    "slot": lambda of: of.is_slot,
    "passes-tests": lambda of: of.passes_tests,
    "in-with": lambda of: of.runs_inside(ast.With),
    "made-from-old": lambda of: of.is_made_from_old,
    "of-the-head": lambda of: of.is_of_the_head,
    "module": lambda of: of.is_of_module,
    "adds": lambda of: of.case.adds,
    "there": lambda of: not of.case.adds and any(r.has(r.name_of(of.case.target)) for r in of.releases),
    "lasts": lambda of: of.lasts,
    "instance": lambda of: of.is_on_object,
    "own-name": lambda of: of.has_own_name,
}  # fmt: skip
