"""What a patch can become: the row of `answers.toml` that fits it, and its words for this place."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from mcore_unpatch.judge import traits
from mcore_unpatch.megatron import api, slots
from mcore_unpatch.megatron.answers import answers
from mcore_unpatch.repository.paths import is_test
from mcore_unpatch.scanner.names.resolver import Resolver
from mcore_unpatch.scanner.related.replacement import Replacement
from mcore_unpatch.scanner.shapes.install import Install
from mcore_unpatch.scanner.sources import prefilter
from mcore_unpatch.scanner.sources.files import Files

_FAKE = re.compile(rb"(?:ModuleType|SimpleNamespace|Mock)\(")
_NAME = re.compile(rb"[\"'](megatron(?:\.\w+)*)[\"']")

_BY_SHAPE = {
    "class-attr": "MCU601",
    "class-of-instance": "MCU601",
    "setattr": "MCU601",
    "mock": "MCU601",
    "module-attr": "MCU602",
    "instance-attr": "MCU603",
    "submodule": "MCU604",
    "sys-modules": "MCU605",
    "string-target": "MCU606",
    "source-rewrite": "MCU607",
    "patch-file": "MCU608",
}
_LONGEST = 60  # of an expression that is quoted
# Who wraps the models that they build, and where code comes before that.
_BRIDGES = {
    rb"\bmegatron[.-]bridge\b": "Megatron-Bridge in a hook of `register_pre_wrap_hook`",
    rb"\bmbridge\b": "mbridge in one of the `post_model_creation_callbacks` of `get_model`",
}


class RuleMatch(NamedTuple):
    """The rule a patch falls under, the seam that replaces it, and how."""

    rule: str
    seam: str = "none"
    replacement: str | None = None
    answer: str = ""
    steps: tuple[str, ...] = ()


def judge(install: Install, new: Replacement, resolver: Resolver) -> RuleMatch:
    """Classify one patch."""
    if install.mock:
        return RuleMatch("MCU901")
    # A test that puts a fake in place of a whole module, or furnishes one: a mock by other means.
    path, whole_module = resolver.model.path, install.shape == "sys-modules" and not install.attribute
    if is_test(path) if whole_module else _is_stubbed(resolver.project, path, install.target):
        return RuleMatch("MCU902")
    # A target as rows name it: `Class.method` for the class and those it derives from, `module.name`.
    classes = [ancestor.rpartition(".")[2] for ancestor in api.ancestry(install.owner)]
    names = [*(f"{cls}.{install.attribute}" for cls in classes), ".".join(install.target.split(".")[-2:])]
    for answer in answers() if not api.is_module(install.target, install.shape) else ():
        if answer.fits(names, install.shape) and all(traits.has(one, install, new, resolver) for one in answer.traits):
            words = _words(install, new, resolver)
            if "in-specs" in answer.traits or "slot" in answer.traits:
                words |= _slots(install)
            steps = tuple(step.format(**words) for step in answer.steps)
            rule = answer.rule or _by_shape(install)
            return RuleMatch(rule, answer.seam, answer.way.format(**words), answer.name, steps)
    return RuleMatch(_by_shape(install))


def for_a_while(match: RuleMatch) -> RuleMatch:
    """The same of a patch that is put on and taken off again: what is named in a spec, or registered, would stay."""
    if match.seam == "hook":
        way = "register PyTorch's forward (pre-)hook for as long, and remove its handle after that (any megatron-core)"
        kept = "Keep the handle that it returns, and call `handle.remove()` where the original is put back."
        match = match._replace(
            steps=tuple(step.replace("where the model is built", "at this place") for step in match.steps)
        )
    elif match.answer == "spec-method":
        way = "name a subclass in the `ModuleSpec` that does this while a flag of yours is set (any megatron-core)"
        kept = "Let it do this only while a flag of yours is set: set it here, clear it where the original is put back."
    else:
        return match
    *steps, last = match.steps
    return match._replace(replacement=way, steps=(*steps, kept, last))


def _by_shape(install: Install) -> str:
    rule = _BY_SHAPE[install.shape]
    symbol = api.lookup(install.owner) if rule == "MCU601" else None
    return "MCU602" if symbol is not None and symbol.kind == "module" else rule


def _bridges(data: bytes) -> str:
    """Where the bridges that a file speaks of let others at the model."""
    return "".join(f", with {where}" for word, where in _BRIDGES.items() if re.search(word, data))


def _words(install: Install, new: Replacement, resolver: Resolver) -> dict[str, str]:
    """What the steps of a row say of this place."""
    function = "the replacement"
    own_line, back_line = traits.own_end(install, new)
    if isinstance(new.function, ast.FunctionDef | ast.AsyncFunctionDef):
        function = f"`{new.function.name}` (line {new.function.lineno})"
    return {
        "line": str(getattr(install.node, "lineno", 1)),
        "function": function,
        "head_line": str(new.head_line),
        "bridges": resolver.kept(_bridges, partial(_bridges, resolver.model.data)),
        "own_line": str(own_line),
        "back_line": str(back_line),
        "always": ", always_call=True" if traits.runs_inside(install, new, ast.Try) else "",
        "name": install.attribute or install.target.rpartition(".")[2],
        "getter": install.target.rpartition(".")[2].removeprefix("get_"),
        "owner": install.owner.rpartition(".")[2],
        "subject": _quoted(install.base) if install.base is not None else "the module",
        "value": f"`{_quoted(install.value)}`" if install.value is not None else "your class",
    }


def _slots(install: Install) -> dict[str, str]:
    """And of the specs that name the class."""
    symbol = api.lookup(install.target)
    name = install.target if symbol is not None and symbol.kind == "class" else install.owner
    said = {"holder": slots.holder(install.owner, install.attribute) or ""}
    words = {"classes": slots.classes, "slots": slots.where, "unreached": slots.unreached}
    return said | {word: say(name, install.judged) for word, say in words.items() if slots.named(name, install.judged)}


def _quoted(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _is_stubbed(project: Files, path: str, target: str) -> bool:
    """Whether a test, a helper it imports or a conftest.py above it puts a fake where `target` would come from."""
    if not is_test(path):
        return False
    names = (name for file in _files(project, path) for name in _names(project, file))
    return any(target == name or target.startswith(f"{name}.") for name in names)


def _files(project: Files, path: str) -> Iterator[str]:
    yield path
    folder = posixpath.dirname(path)
    while True:
        yield posixpath.join(folder, "conftest.py")
        if not folder:
            break
        folder = posixpath.dirname(folder)
    for name in prefilter.imported_modules(project.data(path)):
        module = name.lstrip(".")
        helper = project.locate(path, module, len(name) - len(module))
        if helper and is_test(helper):
            yield helper


def _names(project: Files, file: str) -> list[str]:
    data = project.text(file) if project.exists(file) else b""
    if b"sys.modules" not in data or not _FAKE.search(data):
        return []
    return [name.decode() for name in _NAME.findall(data)]
