"""Wrappers of a class's `forward`: PyTorch's hooks for all modules, and when one of these does what the wrapper did."""

from __future__ import annotations

import ast
import re

from mcore_unpatch.codemods.seams.family import derived
from mcore_unpatch.codemods.seams.hooks.found import Made
from mcore_unpatch.codemods.seams.hooks.module import OF_MEGATRON, Reached
from mcore_unpatch.codemods.seams.patch import Patch
from mcore_unpatch.codemods.syntax import bound_by_import, leaf
from mcore_unpatch.codemods.workbench import Workbench
from mcore_unpatch.editing.edits import as_name
from mcore_unpatch.library.model import Model
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.versions import Version, parse_version

REGISTERS = "torch.nn.modules.module"  # where PyTorch has its hooks for all modules
REGISTER = {"register_module_forward_hook", "register_module_forward_pre_hook"}
_SET = re.compile(rb"\.forward\s*=[^=]")
NOTES = (
    "this is PyTorch's hook for all modules, made for debugging and profiling: it is asked at every call of any module",
    "it runs before the hooks that a module has itself: pre-hooks of Megatron's among them come behind it",
    "with the model at hand, register it on the modules of this class alone: `for module in model.modules()`",
)


def why_no_hook(patch: Patch, files: Workbench) -> str:
    """Why a hook that asks for the class is not what a wrapper of the class was."""
    target = patch.finding.target.rpartition(".")[0]
    if leaf(patch.target.value).endswith(OF_MEGATRON):
        return "Megatron itself calls `forward` of such a module directly, where hooks do not run"
    family = {target.rpartition(".")[2]}
    for model in _releases(patch.situation.options.judged(patch.source.path)):
        found = model.find(target)
        if found is None or found.fact.kind != "class":
            return f"megatron-core {model.label} has no such class"
        if not any(base.rpartition(".")[2] == "Module" for base in model.lineage(found.name)):
            return "that the class is a module of PyTorch is not known"
        for sub in model.derived.get(found.name, ()):
            family.add(sub.rpartition(".")[2])
            if f"{sub}.forward" in model.facts:
                name = sub.rpartition(".")[2]
                return f"`{name}` of megatron-core {model.label} derives from the class and has a `forward` of its own"
    own, is_model, name = set[str](), target.endswith("Model"), target.rpartition(".")[2]
    for source, cls in derived(family, files):
        bases = {leaf(base) for base in cls.bases} - family  # whose `forward` may come before that of the class
        named = (
            one for base in bases for other in files.sources_saying(as_name(base)) for one in other.every(ast.ClassDef)
        )
        if any(map(_has_forward, [cls, *(one for one in named if one.name in bases)])):
            return f"{source.path}:{cls.lineno} derives from the class and has a `forward` of its own"
        own.add(source.path)
    for source in files.sources_saying(_SET, tests=False):
        for node in source.every(ast.Attribute):
            if node.attr == "forward" and isinstance(node.ctx, ast.Store) and leaf(node.value) in family - {name}:
                return f"{source.path}:{node.lineno} sets `forward` of a class that derives from it"
    for call in files.once(Reached).every():
        of_model = call.name.lower().endswith("model") or call.name == "module"
        if call.path in own if call.name == "self" else of_model == is_model:
            return f"{call.path}:{call.line} calls `forward` directly, maybe of such a module: no hook runs there"
    return ""


def _releases(judged: tuple[Version, ...]) -> list[Model]:
    """The releases that a file is judged for, and those between them."""
    between = (one for one in known.minors() if judged[0] <= parse_version(one.label) <= judged[-1])
    return list({one.label: one for one in (*map(known.newest, judged), *between)}.values())


def name_in_hook(patch: Patch, made: Made) -> str:
    """How the hook names the class; nothing where it does not know it."""
    if made.of_class:
        return made.of_class
    text, source = patch.text(patch.target.value), patch.source
    head, around = text.partition(".")[0], patch.around
    if around is not None and made.function in ast.walk(around):
        return text
    imports: list[ast.Import | ast.ImportFrom] = [*source.every(ast.Import), *source.every(ast.ImportFrom)]
    top = (node for node in imports if source.function_of(node) is None)
    bound = {bound_by_import(alias, node) for node in top for alias in node.names}
    return text if head in bound and made.source is source else ""


def _has_forward(cls: ast.ClassDef) -> bool:
    nodes = (node for one in cls.body for node in ([one, *ast.walk(one)] if isinstance(one, ast.Assign) else [one]))
    return any("forward" in {getattr(node, "name", ""), getattr(node, "id", "")} for node in nodes)
