"""Trainers that compute log-probs from logits: their functions are imported from the shims of the same names.

Such a use is no patch. The shims give real logits to the trainer's own function, so that an import alone changes no
number; what saves the memory is `DeferredHead` on the model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from mcore_unpatch.codemods.codemod import COMPAT, AddImport, Codemod, Match, MoveImport
from mcore_unpatch.findings.rules import Rule

if TYPE_CHECKING:
    from mcore_unpatch.codemods.changes import Change
    from mcore_unpatch.editing.edits import Repository
    from mcore_unpatch.editing.source import Source
    from mcore_unpatch.findings.finding import FileError, Finding

Homes = Mapping[str, Sequence[str]]
# When the changes are applied, for the page of each.
APPLIED = """
The rule is off unless selected, because nothing is wrong: `unpatch migrate --select MCU75`. Where the repository
runs a megatron-core before 0.18 nothing is written, and the message names it: see it with `--target-mcore 0.19`.

- `safe`: imports in files that are for Megatron alone, told by their path or by an import of Megatron at their top.
  Every number stays: real logits go to the function they went to.
- With `--unsafe-fixes`: imports in files that other backends use too, which then need megatron-core; and all that makes
  logits lazy. `attach` refuses a model while a patch of its `forward` or `_postprocess` stays: `unpatch scan` lists
  these.

What stays on real logits goes on as before; what is given lazy logits and cannot work with them raises a TypeError
that says what to use. Tests are left, as they are about the trainer's own functions.
"""


@dataclass(frozen=True, slots=True)
class CallerPattern:
    """Statements of a trainer, exactly as upstream has them, that something has to happen to once logits are lazy."""

    path: str  # how the path of the file ends
    code: str  # as `ast.unparse` writes them, one line for each; of a function `def` and the name
    message: str
    instead: str
    how: Literal["by hand", "behind", "in place", "argument"] = "by hand"  # where the text comes
    text: str = ""
    imports: tuple[str, ...] = ()  # names that the text needs from the shim, or from what all have in common
    done: bytes = b"\0"  # a file that says this has it already


def attaching(path: str, code: str, model: str, condition: str) -> CallerPattern:
    """The model is built here: `DeferredHead` is attached to it, where it returns logits."""
    return CallerPattern(
        path,
        code,
        "builds the model that returns logits",
        "attach `DeferredHead()` to the model, and it returns LazyLogits",
        "behind",
        f"if {condition}:\n    attach({model}, DeferredHead())",
        ("DeferredHead", "attach"),
        b"DeferredHead",
    )


def offer(code: str, trainer: str, title: str) -> Rule:
    """The rule of a trainer."""
    return Rule(
        code,
        f"{trainer}-logits",
        f"{title}'s log-probs and entropy are computed from logits",
        "Nothing is wrong here, and the rule is off unless selected. The logits, their softmax and its gradient are "
        f"what runs out of memory first. The functions of `{COMPAT}.{trainer}` have the same names and arguments, give "
        f"real logits to {title}'s own, and need none after `attach(model, DeferredHead())`.",
        versions="the hook exists since 0.18",
        seam="output",
    )


class LogitsCaller(Codemod):
    """What the trainers have in common: each declares its functions, and where they stand."""

    shim: ClassVar[str]
    homes: ClassVar[Homes]  # of each function, the modules that have it
    places: ClassVar[Sequence[CallerPattern]] = ()
    shape = "offer"
    safety = "safe"

    def find(self, source: Source) -> Iterator[Match]:
        """Imports of the functions that the file uses itself, and the places; tests are about the trainer's own."""
        from mcore_unpatch.repository.paths import is_test

        if is_test(source.path):
            return
        rule = self.rules[0].code
        found = {node: names for node in source.every(ast.ImportFrom) if (names := self._names(source, node))}
        if any(not (node.module or "").startswith("megatron.") for node in found):
            for node, names in found.items():
                said = ", ".join(f"`{name}`" for name in names)
                one = len(names) == 1
                message = f"uses {said}, which {'takes' if one else 'take'} logits"
                instead = f"import {'it' if one else 'them'} from `{self.shim}`"
                safety: Literal["safe", "unsafe"] = "safe" if _is_megatrons(source) else "unsafe"
                yield Match(node, rule, f"{node.module or ''}.{names[0]}".lstrip("."), message, instead, safety)
        for place, nodes in self._places(source):
            yield Match(nodes[0], rule, f"{COMPAT}.DeferredHead", place.message, place.instead, "unsafe", True)

    def fix(self, source: Source, match: Match) -> Iterator[Change | AddImport | MoveImport]:
        """The import from the shim, or the text of the place."""
        from mcore_unpatch.codemods.changes import Argument, Remove, Rewrite, below

        if isinstance(match.node, ast.ImportFrom):
            yield MoveImport(match.node, frozenset(self._names(source, match.node)), self.shim)
        for place, nodes in self._places(source):
            if nodes[0] is not match.node or place.how == "by hand":
                continue
            first, *others = nodes
            if place.how == "behind":
                yield below(first, place.text)
            elif place.how == "argument":
                assert isinstance(first, ast.Assign)
                assert isinstance(first.value, ast.Call)
                yield Argument(first.value, place.text)
            else:
                yield Rewrite(first, place.text)
            for node in others:
                yield Remove(node, node.lineno, node.end_lineno or node.lineno)
            for name in place.imports:
                yield AddImport(COMPAT if name in ("DeferredHead", "attach") else self.shim, name)

    def findings(self, project: Repository, known: Sequence[Finding]) -> Iterator[Finding | FileError]:
        """Only what Megatron's side of the trainer uses: other backends have real logits, and maybe no Megatron."""
        from mcore_unpatch.findings.finding import Finding

        found = list(super().findings(project, known))
        used = _used_by_megatron(project) if found else set()
        yield from (one for one in found if not isinstance(one, Finding) or one.path in used)

    def _names(self, source: Source, node: ast.ImportFrom) -> list[str]:
        """The functions that a statement imports and the file uses; what is only passed on stays."""
        from mcore_unpatch.codemods.imported import module_of
        from mcore_unpatch.codemods.syntax import bound_by_import

        if not any(alias.name in self.homes for alias in node.names):
            return []
        module, used = f".{module_of(source, node)}", {name.id for name in source.every(ast.Name)}
        return [
            alias.name
            for alias in node.names
            if bound_by_import(alias, node) in used
            and any(module.endswith(f".{home}") for home in self.homes.get(alias.name, ()))
        ]

    def _places(self, source: Source) -> Iterator[tuple[CallerPattern, list[ast.stmt]]]:
        from mcore_unpatch.editing.source import suites

        for place in self.places:
            if not f"/{source.path}".endswith(f"/{place.path}") or place.done in source.data:
                continue
            wanted = place.code.splitlines()
            for suite in suites(source.tree):
                for start in range(len(suite) - len(wanted) + 1):
                    nodes = suite[start : start + len(wanted)]
                    if all(map(_says, nodes, wanted)):
                        yield place, nodes


def _says(node: ast.stmt, code: str) -> bool:
    if isinstance(node, ast.FunctionDef):
        return code == f"def {node.name}"
    return isinstance(node, ast.Assign) and ast.unparse(node) == code


def _is_megatrons(source: Source) -> bool:
    """Whether a file is for Megatron alone: its path says so, or it imports Megatron whenever it is imported."""
    imports = (node for node in source.tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    modules = (
        name
        for node in imports
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    )
    return "megatron" in source.path.lower() or any(f"{module}.".startswith("megatron.") for module in modules)


def _used_by_megatron(project: Repository) -> set[str]:
    """The files that are for Megatron alone, and what they import, and so on."""
    paths = set(project.paths)
    links: dict[str, set[str]] = {}
    found: set[str] = set()
    for path in project.paths:
        source = project.readable(path)
        if source is None:
            continue
        nodes = source.every(ast.ImportFrom)
        links[path] = {project.locate(path, node.module or "", node.level) or "" for node in nodes} & paths
        if _is_megatrons(source):
            found.add(path)
    waiting = list(found)
    while waiting:
        new = links.get(waiting.pop(), set()) - found
        found |= new
        waiting += new
    return found
