"""What code stands on: methods that carry the hook, as they are, a processor of its own, names that Megatron has."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.syntax import is_name, is_value
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import WRAPPER, Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.layout import HOOK_ARGUMENTS, HOOK_CARRIERS
from mcore_unpatch.megatron.versions import Version, show, within
from mcore_unpatch.scanner.sources.nodes import walk

PROCESSOR = HOOK_ARGUMENTS[0]
HOOK = frozenset(HOOK_CARRIERS)
# One model alone; every other shape changes the class, and with it all models.
_OF_ONE_MODEL = {"instance-attr", "submodule"}


@dataclass(frozen=True)
class RemainingPatches:
    """The patches of a repository that no rewrite takes away."""

    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding], removed: Iterable[Finding]) -> RemainingPatches:
        """All but the removed and what leaves the models as they are.

        Mocks last as long as a test, patch files edit Megatron's own body, and in a module that holds a model the shims
        go to the model.
        """
        gone, apart = set(removed), {"mock", "patch-file", WRAPPER}
        return cls(tuple(one for one in findings if one not in gone and one.shape not in apart))

    def in_the_way(self, path: str) -> str:
        """Why the hook does not work for code in `path`: a patch of what carries it, in the same file or of all models.

        With the patch that has to go first; nothing where there is none.
        """
        for finding in self.findings:
            owner, _, name = finding.target.rpartition(".")
            met = finding.path == path or (finding.shape not in _OF_ONE_MODEL and not finding.in_test)
            if (owner, name) in HOOK and met:
                patched = f"`{owner.rpartition('.')[2]}.{name}` stays patched in {finding.path}, line {finding.line}"
                return f"{patched}, and the hook goes through it: move that patch first"
        return ""


def missing_import(source: Source, at: ast.AST, versions: Sequence[Version]) -> str:
    """What code is in need of and none of the releases has any more, in words: it is for another Megatron."""
    releases = [known.newest(version) for version in versions]
    around = [function for function in source.above(at) if isinstance(function, Function)]
    for node in (statement for around_it in (source.tree, *around) for statement in around_it.body):
        if isinstance(node, ast.ImportFrom) and not node.level and within(node.module or ""):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                lacks = (not known.holds(release, name) and not known.lacking(release, name) for release in releases)
                if all(lacks) and known.ever(name):
                    on = f"megatron-core {show(versions[-1])}"
                    return (
                        f"{on} has no `{alias.name}`, which line {node.lineno} imports: "
                        f"the {'function' if source.function_of(node) else 'file'} is for another release"
                    )
    return ""


def processors(tree: ast.AST) -> Iterator[ast.expr]:
    """What code gives as `output_processor`, by keyword or in a mapping; what is only passed on is not its own."""
    for node in walk(tree):
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == PROCESSOR]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values = [value for key, value in pairs if key is not None and _says(key)]
        elif isinstance(node, ast.Assign):
            named = any(isinstance(target, ast.Subscript) and _says(target.slice) for target in node.targets)
            values = [node.value] if named else []
        else:
            continue
        yield from (value for value in values if not is_value(value, None) and not is_name(value, PROCESSOR))


def _says(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == PROCESSOR
