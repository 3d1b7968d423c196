"""What a write changes: the dotted name of the library that a base and an attribute come to."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.code.names import Names
from mcore_unpatch.code.values import Frame, Kind, Value
from mcore_unpatch.library.interface import MemberKind, SymbolKind
from mcore_unpatch.patches import replacements
from mcore_unpatch.patches.records import Spelling, Target, Write, WriteKind

# What Python itself looks at: whoever writes it changes the function or class.
DUNDERS = {"__code__", "__signature__", "__defaults__", "__kwdefaults__", "__globals__", "__bases__", "__call__"}
EVERYTHING = "*"  # the name that a loop over names stands for
_GIVEN_FUNCTIONS = re.compile("config|args|params$", re.I)  # such objects are given functions on purpose


def target(names: Names, base: Value, name: str, write: Write, frame: Frame | None) -> Target | None:
    """What a write to a value changes, if that is the library's."""
    if base.kind == Kind.MODULE:
        return _of_module(names, base, name, write, frame)
    if base.kind in (Kind.CLASS, Kind.INSTANCE):
        return _of_class(names, base, name, write, frame)
    within = names.library.within(base.name)
    if base.kind == Kind.FUNCTION and within and (name in DUNDERS or name == "__class__"):
        return Target(base.name, _spelled(write) or Spelling.CLASS_ATTRIBUTE)
    leaf = base.name.rpartition(".")[2].lstrip("_")
    is_value = names.library.symbol(base.name) is not None or (
        names.library.is_module(base.name.rpartition(".")[0]) and not leaf[:1].isupper()
    )
    if base.kind == Kind.OTHER and within and not is_value and _is_replacement(names, write, name, frame):
        spelling = Spelling.CLASS_ATTRIBUTE if leaf[:1].isupper() else Spelling.MODULE_ATTRIBUTE
        return Target(f"{base.name}.{name}", _spelled(write) or spelling)
    return None


def _spelled(write: Write) -> Spelling | None:
    return {WriteKind.SETATTR: Spelling.SETATTR, WriteKind.MOCK: Spelling.MOCK}.get(write.kind)


def _is_replacement(names: Names, write: Write, name: str, frame: Frame | None) -> bool:
    callable_ = replacements.is_callable(names, write.value, frame)
    return callable_ and not replacements.is_backup(names, write.value, name, frame)


def _is_constant_name(name: str) -> bool:
    return name.isupper() and name[0] != "_"


def _of_module(names: Names, base: Value, name: str, write: Write, frame: Frame | None) -> Target | None:
    if base.node is not None or not names.library.within(base.name):
        return None
    symbol = names.library.symbol(f"{base.name}.{name}")
    to = Target(f"{base.name}.{name}", _spelled(write) or Spelling.MODULE_ATTRIBUTE)
    if symbol is None and write.kind == WriteKind.SETATTR and isinstance(write.value, (ast.Call, ast.Name)):
        if not names.of(write.value, frame):
            return to
    if symbol is not None and symbol.kind == SymbolKind.STATE:
        return None
    if symbol is not None and symbol.kind in (SymbolKind.FUNCTION, SymbolKind.CLASS):
        return to
    if _is_replacement(names, write, name, frame) or (symbol is not None and _is_constant_name(name)):
        return to
    return None


def _of_class(names: Names, base: Value, name: str, write: Write, frame: Frame | None) -> Target | None:
    on_class, library = base.kind == Kind.CLASS, names.library
    if on_class and base.node is not None:
        return None  # the repository's own class
    of_library: list[str] = []
    spelling = _spelled(write) or (Spelling.CLASS_ATTRIBUTE if on_class else Spelling.INSTANCE_ATTRIBUTE)
    for each in names.lineage(base):
        if each.node is not None:
            if name in each.node._inner.names:
                return None
        elif library.is_class(each.name):
            of_library.append(each.name)
            known = library.own_member(each.name, name)
            is_method = known is not None and known.kind in (MemberKind.METHOD, MemberKind.PROPERTY, MemberKind.CLASS)
            if is_method or name in DUNDERS:
                return Target(f"{each.name if base.node is not None else base.name}.{name}", spelling)
    if not of_library:
        return None
    owner = of_library[0]
    if name == EVERYTHING:
        return Target(f"{base.name}.*", Spelling.SETATTR) if on_class else None
    members = [one for cls in of_library if (one := library.own_member(cls, name)) is not None]
    if on_class:
        if _is_replacement(names, write, name, frame) or (members and _is_constant_name(name)):
            return Target(f"{owner}.{name}", spelling)
        return None
    is_part = library.part(name) or any(one.holds for one in members)
    if is_part and library.module_class() in of_library and replacements.is_new_object(names, write.value, frame):
        return Target(f"{owner}.{name}", Spelling.SUBMODULE)
    if name == "__class__" and base.node is None:
        return Target(f"{owner}.{name}", Spelling.CLASS_OF_INSTANCE)
    keeps_functions = bool(members) and not _GIVEN_FUNCTIONS.search(base.name)
    is_function = replacements.is_own_function(names, write.value, frame)
    is_inherited = is_function and any(library.inherits(cls, name) for cls in of_library)
    if name == "forward" or (keeps_functions and is_function) or is_inherited:
        return Target(f"{owner}.{name}", spelling)
    if replacements.bound_to(write.value) is not None:
        if not replacements.is_backup(names, write.value, name, frame):
            return Target(f"{owner}.{name}", spelling)
    return None
