"""Who builds what a patch changes, and whether another class can take its place there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from mcore_unpatch.library.model import (
    ASKED,
    BASE,
    CALLED,
    COMPARED,
    DEFAULT,
    DERIVED,
    EXACT,
    NAMED,
    SLOT,
    USED,
    Known,
    Model,
    Usage,
)
from mcore_unpatch.megatron import api, known, slots
from mcore_unpatch.megatron.known import built, module_of, who
from mcore_unpatch.megatron.layout import CONFIG, GPT_MODEL, LANGUAGE_MODULE
from mcore_unpatch.megatron.versions import TRAINING, minor, parse_version, show

MADE = ("__init__", "__eq__", "__repr__")  # by `dataclass`, for each class anew
_NOBODY = ("Nothing of", "Who reads", "Megatron does not build")
_TELLING = (NAMED, DEFAULT, EXACT, CALLED, DERIVED, USED, ASKED, COMPARED, BASE)
_MISSING = " is None"
NO_OTHER = "so no other can be passed there"
_BY_DEFAULT = "by default: a subclass can be passed only where you make that call yourself"
_MAKING = {
    "spec": "builds `{}` from a ModuleSpec, which names what builds it, not a built module",
    "argument": "takes `{}` as an argument: another can be passed where one is built, not later",
    "built": "builds `{}` by name, so no other can be passed",
    "made": "sets `{}` itself",
}


def of_class(owner: str, name: str, found: Known, release: Model, whole: bool = True) -> str:
    """A method or an attribute, of the `whole` class or of one object: what counts is who builds the object."""
    short = leaf(owner)
    origin, _, method = (found.fact.trait("from") or "").partition(":")
    use = telling(owner, release)
    if origin == "argument" and use is not None and use.how in (CALLED, EXACT):
        return f"`{short}.{method}` takes `{name}` as an argument, but {who(use, 'makes', release)} the call"
    if origin:
        return f"`{short}.{method}` {_MAKING[origin].format(name)}"
    if not api.has_callable(owner, name):
        made, taken = release.facts.get(owner), release.called_with(owner)
        if whole and made is not None and made.trait("dataclass") is not None and taken and name in taken.names:
            own = "each object gets its own when it is built, so only what reads the class itself sees this"
            return f"`{name}` is a field of `{short}`: {own}"
        later = "" if made is None or made.trait("dataclass") is None else ", or given to `dataclasses.replace`"
        return f"`{name}` is a field of `{short}`: it can be set where one is built{later or ', not later'}"
    if use is not None and use.how == USED and name[:2] != "__":  # nobody builds one: what matters is who calls it
        called = telling(f"{owner}.{name}", release)
        if called is not None and called.how == EXACT:
            return f"{who(called, 'calls', release)} it by name, {NO_OTHER}"
        later_on = ahead(TRAINING, found.name, release, lambda later: of_class(owner, name, found, later))
        if called is None and later_on:
            return later_on
    of_model = "It is a method of the model itself: o" if LANGUAGE_MODULE in api.ancestry(owner) else ""
    return who_builds(owner, release, of_model or "O", name)


def who_builds(owner: str, release: Model, only: str = "O", method: str = "") -> str:
    """Whether another class can take the place of one, for a method of it."""
    short, use = leaf(owner), telling(owner, release)
    if LANGUAGE_MODULE in api.ancestry(owner) or CONFIG in (owner, *api.ancestry(owner)):
        taken = "; Megatron's own `core_transformer_config_from_args` takes one as `config_class`, "
        taken += "but not with MLA or heterogeneous layers"
        return (
            f"{only}nly the code that builds {_built_as(owner, release)} can use a subclass{taken * (owner == CONFIG)}"
        )
    heirs = (usage for name in (owner, *release.derived.get(owner, ())) for usage in release.uses(name))
    # What is given a spec is built by name, and takes from it what it builds itself.
    takes_spec = any(one.call is not None and "spec" in one.call.keywords for one in release.uses(f"{owner}.__init__"))
    default = use if use is not None and use.how == DEFAULT else None
    if takes_spec or default:
        use = built(owner, release) or (None if takes_spec else use)
    is_named = not takes_spec and any(heir.how in (NAMED, SLOT) for heir in heirs)
    named = slots.naming(owner, release, method) if is_named else ""
    where = f"; a subclass helps only where {named}" if named else ""
    if use is not None and use.how in (CALLED, EXACT, DERIVED):
        what = f"subclasses of `{short}`" if use.how == DERIVED else f"`{short}`"
        below = (release.facts[name].trait("dataclass") for name in release.derived.get(owner, ()))
        if use.how == DERIVED and method in MADE and all(trait is not None for trait in below):
            return (
                f"{who(use, 'builds', release)} {what}, which have an `{method}` of their own: it does not reach them"
            )
        taken = f"; {who(default, 'takes', release)} it {_BY_DEFAULT}" if default else ""
        return f"{who(use, 'builds', release)} {what} by name{where or no_other(owner, release)}{taken}"
    if default and not where:
        return f"{who(default, 'takes', release)} `{short}` {_BY_DEFAULT}"
    if use is not None and use.how == USED and not where:
        return f"{who(use, 'uses', release)} `{short}` by name: no argument or config field for a subclass is known"
    if use := built(owner, release):
        return f"{who(use, 'builds', release)} `{short}` by name{where}"
    if told := ahead(TRAINING, owner, release, lambda later: who_builds(owner, later, method=method)):
        return told
    unread = f", as far as was read ({TRAINING} was not)" if known.lacking(release, TRAINING) else ""
    return f"Megatron does not build `{short}` by name{unread}" + (
        where or "; only the code that builds it can use a subclass"
    )


def no_other(name: str, release: Model) -> str:
    """That who calls or builds something takes no other; not where a parameter is called like the class.

    What is called only where an argument is missing is not called where that is given.
    """
    uses = (*release.uses(name), *release.uses(f"{name}.__init__"))
    asked = (use.condition.removesuffix(_MISSING) for use in uses if use.condition.endswith(_MISSING))
    if given := set(filter(str.isidentifier, asked)):
        sure = len(given) == 1 and all(use.condition or use.call is None for use in uses)
        return f", unless `{min(given)}` is given" if sure else ""
    places = [function.fact for use in uses if (function := release.function(use.place)) is not None]
    for module in {module_of(use.place, release) for use in uses}:  # one place stands for all of them
        places += [fact for _, fact in release.members(module) if fact.kind == "function"]
    words = {word.replace("_", "") for place in places for word in place.parameters.names if "_" in word}
    taken = any(leaf(name).lower().endswith(word) for word in words) and leaf(name) != leaf(name).lower()
    return "" if taken else f", {NO_OTHER}"


def _built_as(owner: str, release: Model) -> str:
    """A model as code builds it: of the base of all models two that derive from it."""
    if owner != LANGUAGE_MODULE:
        return f"`{leaf(owner)}`"
    models = sorted(release.derived.get(owner, ()), key=lambda model: (model != GPT_MODEL, -len(release.uses(model))))
    named = ", ".join(f"`{leaf(model)}`" for model in models[:2])
    return f"{f'{named} or another' if named else 'a'} class that derives from `{leaf(owner)}`"


def out_of_reach(owner: str, release: Model) -> str:
    """Who builds a class by name beside those that take another; else nothing."""
    use = built(owner, release)
    return f"; {who(use, 'builds', release)} it by name, out of reach" if use else ""


def telling(name: str, release: Model) -> Usage | None:
    """The use that tells most of who decides; what is partly applied outside of specs is no more than used."""
    told = [replace(usage, how=USED) if _is_applied(usage) else usage for usage in release.uses(name)]
    own = module_of(name, release)
    for how in _TELLING:
        uses = [usage for usage in told if usage.how == how]
        if uses:
            # Those in the module of the name come first, then the programs that run a training.
            far = {one: (module_of(one.place, release) != own, not one.place.startswith(TRAINING)) for one in uses}
            nearest = min(uses, key=lambda one: (one.call is not None, far[one], one.place))
            return replace(nearest, users=max(usage.users for usage in uses))
    return None


def _is_applied(use: Usage) -> bool:
    """`partial(f, ...)`, which names a class or function as a ModuleSpec does, in code that makes no spec."""
    return use.how == NAMED and not re.search("spec|submodules", ".".join(use.place.split(".")[-2:]), re.IGNORECASE)


def ahead(package: str, name: str, release: Model, say: Callable[[Model], str]) -> str:
    """What is said of the first release whose wheel holds a package that uses a name, where this one's lacks it."""
    holding = (minor for minor in known.minors() if not known.lacking(minor, package) and minor.find(name))
    later = next(holding, None) if known.lacking(release, package) else None
    places = [name, *(usage.place for usage in later.uses(name))] if later is not None else []
    if later is None or not any(place.startswith(f"{package}.") for place in places):
        return ""
    said = say(later)
    lacks = f"The wheel of megatron-core {minor_of(release.label)} lacks {package}"
    return "" if said.startswith(_NOBODY) else f"{lacks}. On {minor_of(later.label)}: {said}"


def minor_of(release: str) -> str:
    """The minor version of a release, as it is shown."""
    return show(minor(parse_version(release)))


def leaf(name: str) -> str:
    """The last part of a name."""
    return name.rpartition(".")[2]
