"""Which writes patch the library: what is written to, with what, and whether it is put back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from mcore_unpatch.code.index import is_test
from mcore_unpatch.code.module import BindingKind, Module, is_method, scope_of
from mcore_unpatch.code.names import Names
from mcore_unpatch.code.syntax import function_of, spelled, walk
from mcore_unpatch.code.values import Frame, Kind, Value, Values, texts
from mcore_unpatch.patches.evidence import Evidence
from mcore_unpatch.patches.frames import unfolded
from mcore_unpatch.patches.records import Confidence, Patch, Spelling, Target, Write, WriteKind
from mcore_unpatch.patches.registries import registered, tabled
from mcore_unpatch.patches.replacements import is_callable
from mcore_unpatch.patches.restores import is_restore, is_temporary
from mcore_unpatch.patches.rewrites import rewrites
from mcore_unpatch.patches.targets import DUNDERS, EVERYTHING, target
from mcore_unpatch.patches.writes import owner_of_dict, writes

_DEEPEST = 3  # loops and helpers within one another
_MOST_FRAMES = 500  # rows and calls that one write is looked at in
_PLAIN_VALUES = (
    ast.Constant, ast.Compare, ast.Dict, ast.List, ast.Set, ast.Tuple, ast.JoinedStr, ast.UnaryOp, ast.BinOp,
)  # fmt: skip


class Finder:
    """Finds the patches of a repository."""

    def __init__(self, names: Names) -> None:
        self.names, self.library = names, names.library
        self._evidence = Evidence(names)
        words = b"|".join(re.escape(word.encode()) for word in self.library.words())
        self._may_patch = re.compile(words + rb"|setattr\(|\.__class__ *=[^=]")
        packages = "|".join(re.escape(package) for package in self.library.packages())
        self._imports = re.compile(rf"^[ \t]*(?:from|import)[ \t]+(?:{packages})".encode(), re.M)
        self._near: dict[str, bool] = {}
        self._frames_left = _MOST_FRAMES

    def all(self) -> list[Patch]:
        """Every patch outside tests. What becomes a method tells what its `self` is, so these files are asked twice."""
        found: dict[tuple[str, int, str], Patch] = {}
        paths = [path for path, source in self.names.index.sources.items() if self._is_asked(path, source)]
        for _ in range(2):
            for path in paths:
                known, index = self.names.known(), self.names.index
                module = index.module(path)
                patches = list(self.of_module(module)) if module is not None else []
                for patch in patches:
                    found.setdefault(patch.key, patch)
                if not patches and path not in index.linked:
                    del module
                    self.names.forget_since(known)
                    index.forget(path)
            before = len(self.names.bound)
            for patch in found.values():
                self._bind_self(patch)
            paths = sorted({scope_of(function).module.path for function in list(self.names.bound)[before:]})
            self.names.forget()
        return self._one_a_place(sorted(found.values(), key=lambda patch: patch.key))

    def _one_a_place(self, patches: list[Patch]) -> list[Patch]:
        """One patch for each name that a node writes: of several owners the one patched most, or one that has it."""
        found: dict[tuple[int, str], Patch] = {}
        for patch in patches:
            key = (id(patch.place), patch.target.rpartition(".")[2])
            if key not in found or self._rank(patch) > self._rank(found[key]):
                found[key] = patch
        return list(found.values())

    def _rank(self, patch: Patch) -> int:
        is_whole = patch.target.startswith(f"{self.library.whole()}.")
        return 2 * is_whole + (self.library.symbol(patch.target) is not None)

    def _is_asked(self, path: str, source: bytes) -> bool:
        return not is_test(path) and not self.library.holds_file(path) and self._may_patch.search(source) is not None

    def _bind_self(self, patch: Patch) -> None:
        owner = patch.target.rpartition(".")[0]
        node = patch.replacement.node if patch.replacement is not None else None
        if isinstance(node, ast.FunctionDef) and not is_method(node) and self.library.is_class(owner):
            self.names.bound.setdefault(node, (Value(Kind.INSTANCE, owner),))

    def of_module(self, module: Module) -> Iterator[Patch]:
        """The patches that a file makes."""
        for write in writes(module):
            if not self._is_own(write):
                self._frames_left = _MOST_FRAMES
                yield from self._of_write(write, None, write.place, _DEEPEST)
        yield from registered(self.names, module)
        yield from tabled(self.names, module)
        yield from rewrites(self.names, module)

    def near(self, module: Module) -> bool:
        """Whether a file imports the library."""
        if module.path not in self._near:
            self._near[module.path] = self._imports.search(self.names.index.sources[module.path]) is not None
        return self._near[module.path]

    def _is_own(self, write: Write) -> bool:
        """What cannot be a patch, without asking what anything is: a plain value, or an object that sets itself up."""
        base = write.base
        if not isinstance(base, ast.Name):
            return False
        scope = scope_of(base)
        if scope.self_class(base.id) is not None:
            return write.kind != WriteKind.ITEM  # `self.__dict__["part"] = ...` goes around `__setattr__` on purpose
        if write.kind != WriteKind.ATTRIBUTE or not isinstance(write.value, _PLAIN_VALUES):
            return False
        assert isinstance(write.name, str)
        if write.name.isupper() or write.name in DUNDERS:
            return False
        imported = any(one.kind in (BindingKind.IMPORT, BindingKind.FROM) for one in scope.bindings(base.id))
        return not (imported and isinstance(write.value, ast.Constant) and write.value.value is None)

    # -- one write ---------------------------------------------------------------------------------------------------

    def _of_write(self, write: Write, frame: Frame | None, place: Any, depth: int) -> Iterator[Patch]:
        """The patches a write makes, at its own place or, where its caller says what is written, at the calls."""
        if write.kind == WriteKind.UNKNOWN_ITEM:
            through = _through_alias(write)
            if through is None:
                return
            write = through
        bases = self.names.of(write.base, frame)
        if write.name is None:
            yield from self._of_text(write, bases, place)
            return
        wanted = [write.name] if isinstance(write.name, str) else texts(self.names.of(write.name, frame))
        known = [base for base in bases if self._is_known(base)]
        if depth and (not known or len(wanted) != 1):
            frames = list(islice(unfolded(self.names, write, frame, bool(wanted)), _MOST_FRAMES))
            for inner, call in frames[: max(self._frames_left, 1)]:
                self._frames_left -= 1
                yield from self._of_write(write, inner, call if call is not None else place, depth - 1)
            if frames:
                return
        if not wanted and is_callable(self.names, write.value, frame):
            whole = (Kind.CLASS, Kind.MODULE)
            wanted = [EVERYTHING] if any(one.kind in whole and self.library.within(one.name) for one in known) else []
        if not known and _is_any_module(write.base):
            given = (one.name for one in self.names.of(write.value, frame) if self.library.within(one.name))
            for name in wanted or [name.rpartition(".")[2] for name in given]:
                yield from self._everywhere(write, name, place)
            return
        for name in wanted:
            yield from self._judged(write, self.names.settled(bases), name, frame, place)

    def _is_known(self, base: Value) -> bool:
        if base.kind in (Kind.PARAMETER, Kind.TEXT):
            return False
        return base.kind != Kind.OTHER or self.library.within(base.name)

    def _judged(self, write: Write, bases: Values, name: str, frame: Frame | None, place: Any) -> Iterator[Patch]:
        found = [one for base in bases if (one := target(self.names, base, name, write, frame)) is not None]
        if not found and not any(self._is_settled(base) for base in bases):
            typed = any(
                base.kind in (Kind.INSTANCE, Kind.OTHER) and not base.name.endswith("nn.Module") for base in bases
            )
            near = self.near(scope_of(write.place).module)
            told = self._evidence.about(write, name, near, typed)
            found = [told] if told is not None else []
        for to in self._one_each(found, bases):
            is_set_up = to.spelling == Spelling.SUBMODULE and self._is_bound_self(write.base)
            if not is_set_up and not is_restore(self.names, write, name, to.name, frame):
                yield self._patch(write, to, name, frame, place)

    def _one_each(self, found: list[Target], bases: Values) -> list[Target]:
        """One target of what may be one of several classes: the one that is patched most often, or the first."""
        if len(found) > 1 and all(base.kind != Kind.MODULE for base in bases):
            whole = self.library.whole()
            return [next((one for one in found if one.name.startswith(f"{whole}.")), found[0])]
        return list({one.name: one for one in found}.values())

    def _is_bound_self(self, node: ast.AST) -> bool:
        """Whether a name is the object of a function that becomes a method: it sets itself up."""
        bindings = scope_of(node).bindings(node.id) if isinstance(node, ast.Name) else []
        arg = bindings[0].node if bindings and bindings[0].kind == BindingKind.PARAMETER else None
        args = function_of(arg).args if arg is not None else None
        if arg is None or args is None or (args.posonlyargs + args.args)[:1] != [arg]:
            return False
        return arg.arg == "self" or function_of(arg) in self.names.bound

    def _is_settled(self, base: Value) -> bool:
        return base.kind in (Kind.MODULE, Kind.CLASS, Kind.FUNCTION) or bool(self.names.of_library(base))

    def _patch(self, write: Write, to: Target, name: str, frame: Frame | None, place: Any) -> Patch:
        values = self.names.of(write.value, frame)
        kinds = (Kind.FUNCTION, Kind.CLASS, Kind.INSTANCE)
        made = next((one for one in values if one.kind in kinds), None)
        module, temporary = scope_of(place).module, is_temporary(write, name)
        return Patch(module, place, to.name, to.spelling, to.sure, made, write, frame, temporary)

    def _everywhere(self, write: Write, name: str, place: Any) -> Iterator[Patch]:
        """A loop over all modules rebinds a name: the library's, where that has it."""
        having = next(iter(self.library.modules_with(name)), "")
        if having:
            to = Target(f"{having}.{name}", Spelling.SYS_MODULES, Confidence.LIKELY)
            symbol = self.library.symbol(to.name)
            to = to._replace(name=symbol.name) if symbol is not None else to
            yield self._patch(write, to, name, None, place)

    def _of_text(self, write: Write, bases: Values, place: Any) -> Iterator[Patch]:
        """A dotted text names what is replaced: an entry of `sys.modules`, a mock."""
        spelling = Spelling.MOCK if write.kind == WriteKind.MOCK else Spelling.SYS_MODULES
        for text in texts(bases):
            if self.library.within(text):
                symbol = self.library.symbol(text)
                to = Target(symbol.name if symbol is not None else text, spelling)
                yield self._patch(write, to, text.rpartition(".")[2], None, place)


def _through_alias(write: Write) -> Write | None:
    """`d = vars(module); d["name"] = value`."""
    if not isinstance(write.base, ast.Name):
        return None
    owners = (owner_of_dict(one.value) for one in scope_of(write.base).bindings(write.base.id))
    owner = next((one for one in owners if one is not None), None)
    return write._replace(base=owner, kind=WriteKind.ITEM) if owner is not None else None


def _is_any_module(node: ast.AST) -> bool:
    """Whether an object is any module: `for m in sys.modules.values()`, `m = sys.modules[name]`."""
    for _ in range(3):
        if isinstance(node, ast.Subscript):
            return spelled(node.value) == "sys.modules"
        if not isinstance(node, ast.Name):
            return False
        value = next((one.value for one in scope_of(node).bindings(node.id) if isinstance(one.value, ast.expr)), None)
        if value is None:
            return False
        if any(spelled(inner) == "sys.modules" for inner in walk(value)):
            return True
        node = value
    return False
