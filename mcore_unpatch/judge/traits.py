"""What a patch does, told from the function it puts in place: the traits that the rows of `answers.toml` ask for."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

from mcore_unpatch.findings import reasons
from mcore_unpatch.judge.originals import calls_of_original, calls_original_once, is_original, reaches_original
from mcore_unpatch.library.model import ASKED
from mcore_unpatch.megatron import api, known, slots
from mcore_unpatch.scanner.names.bindings import derives
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.related.replacement import OUTPUT_WORDS, VALUE_WORDS, Replacement
from mcore_unpatch.scanner.shapes.install import Install, is_bound_method
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import last_name, path_text

Trait = Callable[[Install, Replacement, Resolver], bool]

_COLLECTIONS = ast.Set | ast.Tuple | ast.List
MASKED = re.compile(rb"(?i)replay\w*mask|mask\w*replay")
_LOSSES = ("loss_func", "compute_language_model_loss", "cross_entropy", "MTPLossAutoScaler")
_ADAPTERS = ("lora", "quant", "fp8", "wrap", "adapter")
_PRODUCT = ("linear", "matmul", "float")
_PASSING = ("identity", "passthrough", "hidden")


def has(trait: str, install: Install, new: Replacement, resolver: Resolver) -> bool:
    """Whether a patch has a trait; `!name` is its opposite, `a|b` one of several."""
    if "|" in trait:
        return any(has(either, install, new, resolver) for either in trait.split("|"))
    if trait.startswith("!"):
        return not has(trait[1:], install, new, resolver)
    return TRAITS[trait](install, new, resolver)


def own_end(install: Install, new: Replacement) -> tuple[int, int]:
    """The lines where it returns something of its own, and where what it replaced returns; 0 for none."""
    own, back = [0], [0]
    originals = {id(call) for call in calls_of_original(install, new)} if new.returned_calls else set()
    for line, call in new.returned_calls:
        is_back = id(call) in originals or getattr(call.func, "attr", "") == "_postprocess"
        (back if is_back else own).append(line)
    return max(own), max(back)


def _computes_no_loss(install: Install, new: Replacement, _: Resolver) -> bool:
    """An MTP loss that is never computed."""
    own = new.function is not None and not reaches_original(install, new)
    return own and not any(loss in word for word in new.words for loss in _LOSSES)


def _only_multiplies(_: Install, new: Replacement, __: Resolver) -> bool:
    """It casts and multiplies, and does nothing else."""
    called = [node.func for node in new.nodes if isinstance(node, ast.Call)]
    names = [node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "") for node in called]
    computed = any(isinstance(node, ast.BinOp) and not isinstance(node.op, ast.MatMult) for node in new.nodes)
    return bool(names) and not computed and all(any(word in name for word in _PRODUCT) for name in names)


def _is_class(install: Install, _: Replacement, __: Resolver) -> bool:
    symbol = api.lookup(install.target)
    return symbol is not None and symbol.kind == "class"


def _named_in_specs(install: Install, _: Replacement, __: Resolver) -> bool:
    """A class that a ModuleSpec names is replaced, or a method of one or of its base; not one that models build too."""
    name = install.target if (whole := _is_class(install, _, __)) else install.owner
    if whole and install.attribute not in slots.table(install.judged):
        return False  # those that derive from it have it from their import on
    more = not whole or install.patches_more
    there = more or any(known.holds(release, known.name_on(release, name)) for release in install.judged)
    named = there and slots.named(name, install.judged)
    return bool(named) and not any(api.is_model(owner) for owner, _ in api.holders(name))


def _passes_tests(install: Install, _: Replacement, resolver: Resolver) -> bool:
    """Megatron never asks whether a module is of the class, or what takes its place derives from it."""
    symbol = api.lookup(install.target)
    if symbol is None or not any(use.how == ASKED for release in install.judged for use in release.uses(symbol.name)):
        return True
    new = resolver.at(install.site).expr(install.value)
    if new is not None and new.home is not None and isinstance(new.node, ast.ClassDef):
        return derives(new.node, new.home, symbol.name)
    return new is not None and symbol.name in api.ancestry(new.name)


def runs_inside(install: Install, new: Replacement, kind: type[ast.With | ast.Try]) -> bool:
    """What it replaced is called in a `with`, or in a `try` whose `finally` runs when that raises as well."""
    calls = {id(call) for call in calls_of_original(install, new)}
    blocks = [node for node in new.nodes if isinstance(node, kind)] if calls else []
    return any(id(node) in calls for block in blocks for node in walk(block) if getattr(block, "finalbody", True))


def _switches_mtp_off(install: Install, new: Replacement, _: Resolver) -> bool:
    """It keeps the MTP loss from being computed: it clears a switch, or hands the original `False` for it."""
    if any(path.endswith(".mtp_process") for path in new.written):
        return True
    given = [keyword for call in calls_of_original(install, new) for keyword in call.keywords]
    off = [one for one in given if one.arg == "mtp_in_postprocess" and isinstance(one.value, ast.Constant)]
    return any(isinstance(keyword.value, ast.Constant) and not keyword.value.value for keyword in off)


def _made_from_old(install: Install, new: Replacement, _: Resolver) -> bool:
    """What is put in place is given what it replaces: it wraps it, or takes its weights over."""
    given = walk(install.value) if install.value is not None else ()
    return any(is_original(node, install, new) for node in given if node is not install.value)


def _is_on_instance(install: Install, new: Replacement, _: Resolver) -> bool:
    """One object is changed: not a class by a name, which gives a function that nobody bound its `self`."""
    taken = new.function.args.args[:1] if new.function is not None else []
    unbound = (
        install.value is not None and not is_bound_method(install.value) and any(one.arg == "self" for one in taken)
    )
    return (install.on_instance or install.shape == "instance-attr") and not unbound


def _has_own_name(install: Install, _: Replacement, resolver: Resolver) -> bool:
    """A name that nothing in Megatron has, for a class of its own, and that no text puts into code of Megatron's."""
    symbol, name = api.lookup(install.owner), install.attribute
    if symbol is None or symbol.kind != "class" or ".extensions." in install.owner:
        return False
    if name.startswith("__") or name in api.attribute_names():
        return False
    in_code = re.compile(rf"\.{name}\b|\b{name}\s*\(")
    return not any(in_code.search(text) for text in resolver.once(_texts, resolver.model.tree))


def _texts(tree: ast.AST) -> list[str]:
    return [node.value for node in walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _unparsed(value: ast.AST | None, resolver: Resolver) -> str:
    return resolver.once(ast.unparse, value) if value is not None else ""


def _called(install: Install, resolver: Resolver) -> str:
    value = install.value
    written = path_text(value.func) or "" if isinstance(value, ast.Call) else _unparsed(value, resolver)
    return written.lower()


def _writes_only(new: Replacement, fits: Callable[[str], bool]) -> bool:
    """Whether all it writes are such attributes, and there are some."""
    return bool(new.written) and all(map(fits, new.written))


TRAITS: dict[str, Trait] = {
    "unknown": lambda _, new, __: new.function is None,
    "calls-nothing": lambda _, new, __: new.function is not None and not new.calls,  # it gives what is known
    "delegates": lambda install, new, _: reaches_original(install, new),
    "calls-once": lambda install, new, _: calls_original_once(install, new),
    "log-probs": lambda _, new, __: any(map(OUTPUT_WORDS.search, new.words)),
    "mtp": lambda _, new, __: any("mtp" in word.lower() for word in new.words),
    "values": lambda _, new, __: any(map(VALUE_WORDS.search, new.words)),
    "passthrough": lambda _, new, __: new.returns_its_input,
    "head": lambda _, new, __: "output_layer" in new.words,
    "decoder": lambda _, new, __: "decoder" in new.words,
    "detaches": lambda _, new, __: any("detach" in word for word in new.words),
    "replay": lambda _, new, __: any("replay" in word.lower() for word in new.words),
    # Its file replays single tokens, which Megatron's own replay does not.
    "masked-replay": lambda _, new, __: bool(new.function and new.home and MASKED.search(new.home.model.data)),
    "fp32": lambda _, new, __: bool(new.words & {"float", "float32", "fp32"}),
    "clips": lambda _, new, __: any("clip_grad" in word for word in new.words),
    # Its file computes gradient norms, and speaks of multi-token prediction.
    "mtp-norms": lambda _, __, resolver: all(word in resolver.model.data for word in (b"mtp", b"get_grad_norm")),
    "remote-code": lambda install, new, resolver: (
        "trust_remote_code" in new.words or "trust_remote_code" in _unparsed(install.value, resolver)
    ),
    "product": _only_multiplies,
    "meta": lambda _, new, __: "meta" in new.strings,
    "batch-invariant": lambda _, new, __: any("batch_invariant" in word for word in new.words),
    # The function that installs the patch also builds a schedule plan.
    "plan": lambda install, _, resolver: (
        ".build_schedule_plan" in _unparsed(getattr(install.site.scope.function, "node", None), resolver)
    ),
    "takes-hook": lambda _, new, __: "output_processor" in new.words,  # so it changes something else
    "runs-hook": lambda _, new, __: any(last_name(call.func) == "output_processor" for call in new.calls),
    # A forward that runs parts of the backward pass too: a piece of a pipeline schedule, not of the output.
    "schedule": lambda _, new, __: any("backward" in word for word in (getattr(new.function, "name", ""), *new.words)),
    # It puts another number of MTP layers into the config around the original: nothing else is written.
    "mtp-count": lambda _, new, __: _writes_only(new, lambda path: path.endswith(".mtp_num_layers")),
    "edits-config": lambda _, new, __: _writes_only(new, lambda path: ".config." in f".{path}"),
    # Around what it replaced, it puts another `forward` into the output layer: it only carries that patch.
    "swaps-head": lambda install, new, _: reaches_original(install, new) and new.head_line > 0,
    # For labels it returns something of its own, and else what it replaced returns.
    "own-end": lambda install, new, _: "labels" in new.words | new.strings and all(own_end(install, new)),
    # It returns what the original does, and changes nothing but who adds arguments to the parser.
    "passes-provider": lambda install, new, _: (
        "extra_args_provider" in new.words and own_end(install, new)[0] == 0 < own_end(install, new)[1]
    ),
    "no-loss": _computes_no_loss,
    "removes-keys": lambda _, new, __: "pop" in new.words or any(isinstance(node, ast.Delete) for node in new.nodes),
    "class": _is_class,
    "in-specs": _named_in_specs,
    # A part of a layer that the spec of the layer names.
    "slot": lambda install, _, __: slots.holder(install.owner, install.attribute) is not None,
    "passes-tests": _passes_tests,
    # What it replaced is called while a context manager is open.
    "in-with": lambda install, new, _: runs_inside(install, new, ast.With),
    "compiles": lambda install, _, __: (
        isinstance(install.value, ast.Call) and ast.unparse(install.value.func) == "torch.compile"
    ),
    "mtp-off": _switches_mtp_off,
    "made-from-old": _made_from_old,
    # The output layer of a model is changed: no ModuleSpec names it.
    "of-the-head": lambda install, _, __: install.base is not None and last_name(install.base) == "output_layer",
    # A module of Megatron's, or what one holds under a name.
    "module": lambda install, _, __: any(map(api.is_module_class, (install.owner, install.owner.rpartition(".")[0]))),
    "adds": lambda install, _, __: install.adds,
    # Some release that it is judged for has it, so that a subclass overrides it.
    "there": lambda install, _, __: (
        not install.adds and not all(reasons.adds(install.target, release) for release in install.judged)
    ),
    # The newest release has it too, or no release is known to.
    "lasts": lambda install, _, __: known.last(install.target) in (None, known.atlas().labels[-1]),
    "instance": _is_on_instance,
    "own-name": _has_own_name,
    "adapter": lambda install, _, resolver: any(word in _called(install, resolver) for word in _ADAPTERS),
    "passing": lambda install, _, resolver: any(word in _called(install, resolver) for word in _PASSING),
}
