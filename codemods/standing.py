"""What code stands on: methods that carry the hook, as they are, a processor of its own, names that Megatron has."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mcore_unpatch.codemods.syntax import is_name, is_value
from mcore_unpatch.editing.refusals import Left, Refusal
from mcore_unpatch.editing.source import Function, Source
from mcore_unpatch.findings.finding import WRAPPER, Finding
from mcore_unpatch.megatron import known
from mcore_unpatch.megatron.layout import HOOK_ARGUMENTS, HOOK_CARRIERS
from mcore_unpatch.megatron.versions import Version, show, within

PROCESSOR = HOOK_ARGUMENTS[0]
HOOK = frozenset(HOOK_CARRIERS)
# One model alone; every other shape changes the class, and with it all models.
OF_ONE_MODEL = {"instance-attr", "submodule"}
# Mocks last as long as a test, patch files edit Megatron's own body, and in a module that holds a model the shims go to
# the model.
_APART = {"mock", "patch-file", WRAPPER}


@dataclass(frozen=True)
class RemainingPatches:
    """The patches of a repository that no rewrite takes away."""

    findings: tuple[Finding, ...]

    @classmethod
    def of(cls, findings: Iterable[Finding], removed: Iterable[Finding]) -> RemainingPatches:
        """All but the removed and what leaves the models as they are."""
        gone = set(removed)
        return cls(tuple(one for one in findings if one not in gone and one.shape not in _APART))

    def in_the_way(self, path: str) -> Left | None:
        """A patch of what carries the hook, in the same file or of all models: the hook does not work there."""
        for finding in self.findings:
            owner, _, name = finding.target.rpartition(".")
            met = finding.path == path or (finding.shape not in OF_ONE_MODEL and not finding.in_test)
            if (owner, name) in HOOK and met:
                return Left(Refusal.BELOW, f"{finding.path}:{finding.line}")
        return None


def missing_import(source: Source, at: ast.AST, versions: Sequence[Version]) -> Left | None:
    """What code is in need of and none of the releases has any more: it is for another Megatron."""
    releases = [known.newest(version) for version in versions]
    around = [function for function in source.above(at) if isinstance(function, Function)]
    for node in (statement for around_it in (source.tree, *around) for statement in around_it.body):
        if isinstance(node, ast.ImportFrom) and not node.level and within(node.module or ""):
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                lacks = (release.has(name) is False and not known.lacking(release, name) for release in releases)
                if all(lacks) and known.ever(name):
                    return Left(Refusal.OTHER_RELEASE, f"{show(versions[-1])} has no {name}")
    return None


def processors(tree: ast.AST) -> Iterator[ast.expr]:
    """What code gives as `output_processor`, by keyword or in a mapping; what is only passed on is not its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == PROCESSOR]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            values = [value for key, value in pairs if key is not None and is_value(key, PROCESSOR)]
        elif isinstance(node, ast.Assign):
            named = any(isinstance(one, ast.Subscript) and is_value(one.slice, PROCESSOR) for one in node.targets)
            values = [node.value] if named else []
        else:
            continue
        yield from (value for value in values if not is_value(value, None) and not is_name(value, PROCESSOR))
