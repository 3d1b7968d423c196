"""Classes of a repository in the place of Megatron's, named in the specs that Megatron's own functions make.

spec = with_classes(get_gpt_layer_local_spec(), {SelfAttention: MySelfAttention})
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import partial
from types import FunctionType, MethodType
from typing import Any, TypeVar

_Spec = TypeVar("_Spec")
_OF_SPECS = ("ModuleSpec", "Submodules")


def with_classes(spec: _Spec, classes: Mapping[type, type], *, needed: bool = True) -> _Spec:
    """A spec that names the values of `classes` wherever the given one names their keys, and just these.

    `spec` is a `ModuleSpec`, `...Submodules` of one, a list of specs, or what else stands in one. It is not changed;
    what names none of the classes is shared with it. Raises a ValueError for a class that it does not name, unless that
    is not `needed`: then a spec may do without, as a patch of a class has no effect on models without it.
    """
    swap = _Swap(dict(classes))
    made: _Spec = swap.of(spec)
    if needed and (missing := [old.__name__ for old in classes if old not in swap.met]):
        named = ", ".join(sorted(set(swap.named))) or "no class"
        raise ValueError(
            f"with_classes: this spec does not name {' or '.join(missing)}. It names {named}. Give the class that it "
            "names, or needed=False for a spec that may do without."
        )
    return made


class _Swap:
    """One walk through a spec: a part that several places share stays shared."""

    def __init__(self, classes: dict[type, type]) -> None:
        self.classes = classes
        self.met: set[type] = set()
        self.named: list[str] = []
        self._made: dict[int, tuple[Any, Any]] = {}  # by id, with the part itself, which so keeps its id

    def of(self, part: Any) -> Any:
        """The part as it is to be: the very same where it names none of the classes."""
        if id(part) not in self._made:
            self._made[id(part)] = part, part  # what a cycle gets to see
            self._made[id(part)] = part, self._of(part)
        return self._made[id(part)][1]

    def _of(self, part: Any) -> Any:
        match part:
            case type():
                return self._class(part)
            case MethodType(__self__=type() as owner) if owner in self.classes:  # `MLP.as_mlp_submodule`
                return getattr(self._class(owner), part.__name__)
            case (str(module), str(name)):  # a place to import from
                at = [old for old in self.classes if (old.__module__, old.__name__) == (module, name)]
                return self._class(at[0]) if at else part
            case list() | tuple() | set() | frozenset():
                items = [self.of(item) for item in part]
                if all(map(_same, items, part)):
                    return part
                return type(part)(*items) if hasattr(part, "_fields") else type(part)(items)
            case dict():
                new = {key: self.of(value) for key, value in part.items()}
                return part if all(map(_same, new.values(), part.values())) else type(part)(new)
            case partial():
                parts = [part.func, part.args, part.keywords]
                func, args, keywords = map(self.of, parts)
                if all(map(_same, (func, args, keywords), parts)):
                    return part
                return type(part)(func, *args, **keywords)
            case FunctionType():
                self._look_into(part)
            case _ if any(base.__name__.endswith(_OF_SPECS) for base in type(part).__mro__):
                return self._fields(part)
        return part

    def _class(self, cls: type) -> type:
        self.named.append(cls.__name__)
        if cls in self.classes:
            self.met.add(cls)
        return self.classes.get(cls, cls)

    def _fields(self, part: Any) -> Any:
        new = {name: self.of(value) for name, value in vars(part).items()}
        if all(new[name] is value for name, value in vars(part).items()):
            return part
        made = copy.copy(part)
        for name, value in new.items():
            object.__setattr__(made, name, value)  # a dataclass may be frozen
        return made

    def _look_into(self, function: FunctionType) -> None:
        """Raise for a function that holds one of the classes: it would go on to build that."""
        given = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        held = [cell.cell_contents for cell in function.__closure__ or ()]
        if any(self.of(value) is not value for value in (*given, *held)):
            names = " or ".join(old.__name__ for old in self.classes)
            raise ValueError(
                f"with_classes: `{function.__qualname__}` in this spec builds {names} itself, and no copy of the spec "
                "changes that: name your class where the function is made."
            )


def _same(one: Any, other: Any) -> bool:
    return one is other
