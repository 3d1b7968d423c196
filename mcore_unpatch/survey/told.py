"""The patches of a repository as findings: what the core found and judged, with the place as a reader knows it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.syntax import parent_of, spelled, walk
from mcore_unpatch.code.values import Kind
from mcore_unpatch.effects.records import Effect
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.effects.traits import Traits
from mcore_unpatch.effects.verdicts import Fate, Reason, Verdict
from mcore_unpatch.findings.finding import BREAKS, NEVER_RUNS, RUNS, Act, Finding, Live, OnRelease, Related
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.megatron import parts
from mcore_unpatch.megatron.answers import answer_named
from mcore_unpatch.megatron.versions import Version, show
from mcore_unpatch.patches.lives import live_of
from mcore_unpatch.patches.records import Confidence, Patch, Spelling
from mcore_unpatch.records import replace
from mcore_unpatch.survey.core import Core
from mcore_unpatch.survey.quoting import Text

_RULES = {
    Spelling.CLASS_ATTRIBUTE: "MCU601",
    Spelling.CLASS_OF_INSTANCE: "MCU601",
    Spelling.SETATTR: "MCU601",
    Spelling.MOCK: "MCU601",
    Spelling.MODULE_ATTRIBUTE: "MCU602",
    Spelling.INSTANCE_ATTRIBUTE: "MCU603",
    Spelling.SUBMODULE: "MCU604",
    Spelling.SYS_MODULES: "MCU605",
    Spelling.STRING_TARGET: "MCU606",
    Spelling.SOURCE_REWRITE: "MCU607",
}
_FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
_STORES = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Delete
_LONGEST = 60  # of an expression that is quoted
# Who wraps the models that they build, and where code comes before that.
_BRIDGES = {
    rb"\bmegatron[.-]bridge\b": "Megatron-Bridge in a hook of `register_pre_wrap_hook`",
    rb"\bmbridge\b": "mbridge in one of the `post_model_creation_callbacks` of `get_model`",
}


class Told:
    """Makes findings of the patches of one repository."""

    def __init__(self, core: Core, versions: Callable[[str], tuple[Version, ...]]) -> None:
        """`versions` tells by path what a file is judged for."""
        self._judge, self._megatrons, self._versions = core.judge, core.megatrons, versions
        self._verdicts, self._restored = core.verdicts, core.finder.restored
        self._texts: dict[str, Text] = {}

    def finding(self, patch: Patch) -> Finding:
        """One patch."""
        case = self._judge.cases[patch]
        live = Live(*live_of(self._judge.guards, patch, self._megatrons.releases))
        releases = {version: self._megatrons.release(version) for version in self._versions(patch.path)}
        judged = list(dict.fromkeys(one for version, one in releases.items() if live.on(version)))
        effects = {one: self._judge.on(patch, one) for one in judged}
        asked = list(dict.fromkeys(releases.values())) or [self._megatrons.every[-1]]
        own = self._verdict(patch, asked, live)
        row = self._verdicts.row(case, judged or [self._megatrons.every[-1]])
        told = answer_named(row.name) if row is not None else None
        if told is not None:
            own = own._replace(row=told.name)
        node, text = patch.place, self._text(patch)
        scope = scope_of(patch.write.place if patch.write is not None else node)
        outermost = scope.outermost_function()
        around = scope.function()
        whole: Any = parent_of(node) if isinstance(parent_of(node), _STORES) else node
        end_line = whole.end_lineno or node.lineno
        return Finding(
            rule=(told.rule if told is not None else "") or self._by_spelling(case),
            path=patch.path,
            line=node.lineno,
            column=text.characters(node.lineno, node.col_offset) + 1,
            end_line=end_line,
            target=patch.target,
            shape=str(patch.spelling),
            seam=told.seam if told is not None else "none",
            confidence=str(patch.sure),
            temporary=patch.temporary,
            own=Verdict(Fate.GOES, Reason.SAME) if _sets_what_is_there(case, asked) else own,
            words=tuple(self._words(case, asked).items()) if told is not None else (),
            act=_act(case, asked),
            effects=_merged(effects, releases),
            outcomes=tuple(self._outcomes(patch, live, releases, effects)),
            related=tuple(self._related(case)),
            live=live,
            installed_by=outermost.node.name if outermost is not None and not outermost.node.decorator_list else "",
            scope=_qualified(around) if around is not None else "",
            source=text.between(node.lineno, end_line),
        )

    def _verdict(self, patch: Patch, releases: Sequence[Detailed], live: Live) -> Verdict:
        """What becomes of it; what is off as it stands can go, whichever Megatron it is for."""
        told = self._verdicts.of(patch, releases)
        is_off = told.reason == Reason.FOR_OTHERS and any(one.always and one.rules_out for one in live.guards)
        return Verdict(Fate.GOES, Reason.OFF) if is_off else told

    def _outcomes(
        self,
        patch: Patch,
        live: Live,
        releases: dict[Version, Detailed],
        effects: dict[Detailed, tuple[Effect, ...]],
    ) -> Iterator[OnRelease]:
        """How it fares on each release that its file is judged for."""
        for version, release in releases.items():
            raises = any(one.raises for one in effects.get(release, ()))
            outcome = (BREAKS if raises else RUNS) if live.on(version) else NEVER_RUNS
            yield OnRelease(show(version), outcome, self._verdict(patch, [release], live).fate)

    def _text(self, patch: Patch) -> Text:
        if patch.path not in self._texts:
            source = self._judge.names.index.sources[patch.path].decode(errors="replace")
            self._texts[patch.path] = Text(source.split("\n"))
        return self._texts[patch.path]

    def _related(self, case: Replaced) -> Iterator[Related]:
        """The lines where what is replaced is kept, and where it is put back."""
        patch, write = case.patch, case.patch.write
        path = f"{spelled(write.base)}.{case.attribute}" if write is not None and spelled(write.base) else ""
        plain = [one for one in walk(patch.module.tree) if isinstance(one, ast.Assign)] if path else []
        kept = {spelled(to): one.lineno for one in plain if spelled(one.value) == path for to in one.targets}
        back = {one.lineno for one in plain if spelled(one.value) in kept for to in one.targets if spelled(to) == path}
        reads = {int(getattr(node, "lineno", 0)) for node in case.originals.reads} - {patch.line, 0}
        yield from (Related(line, "backup") for line in sorted({*kept.values()} or {*sorted(reads)[:1]}))
        back |= self._restored.get((patch.path, case.target), set())
        yield from (Related(line, "restore") for line in sorted(back - {patch.line}))

    def _by_spelling(self, case: Replaced) -> str:
        rule = _RULES[case.patch.spelling]
        return "MCU602" if rule == "MCU601" and case.names.library.is_module(case.owner) else rule

    def _words(self, case: Replaced, judged: Sequence[Detailed]) -> dict[str, str]:
        """What the steps of a row say of this place."""
        function, patch, write = case.function, case.patch, case.patch.write
        traits = Traits(case, judged, parts.TELLS)
        name = "the replacement"
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"`{function.name}` (line {function.lineno})"
        own_line, back_line = traits.own_lines
        source = self._judge.names.index.sources[patch.path]
        value = write.value if write is not None else None
        return {
            "line": str(patch.line),
            "function": name,
            "head_line": str(traits.head_line),
            "bridges": "".join(f", with {where}" for word, where in _BRIDGES.items() if re.search(word, source)),
            "own_line": str(own_line),
            "back_line": str(back_line),
            "always": ", always_call=True" if traits.runs_inside(ast.Try) else "",
            "name": case.attribute,
            "getter": case.attribute.removeprefix("get_"),
            "owner": case.owner.rpartition(".")[2],
            "subject": _quoted(write.base) if write is not None else "the module",
            "value": f"`{_quoted(value)}`" if value is not None else "your class",
        }


def _act(case: Replaced, judged: Sequence[Detailed]) -> Act:
    """What a patch does to a name."""
    patch, write = case.patch, case.patch.write
    if patch.spelling == Spelling.SUBMODULE:
        return Act.SWAPS
    if write is not None and write.value is None and patch.spelling != Spelling.MOCK:
        return Act.REMOVES
    if case.adds or all(release.has(release.name_of(patch.target)) is False for release in judged):
        return Act.ADDS
    part = getattr(write.place, "attr", "") if write is not None else ""
    return Act.ALTERS if part in _FUNCTION_PARTS else Act.REPLACES


def _merged(effects: dict[Detailed, tuple[Effect, ...]], releases: dict[Version, Detailed]) -> tuple[Effect, ...]:
    """Each effect once, of the newest release first, with all versions on which it is the same."""
    labels: dict[Detailed, list[str]] = {}
    for version, release in releases.items():
        labels.setdefault(release, []).append(show(version))
    found: list[Effect] = []
    for release in reversed(effects):
        found += (one for one in effects[release] if not any(one.is_same(known) for known in found))
    return tuple(
        replace(
            one,
            releases=tuple(label for release, some in effects.items() if _has(some, one) for label in labels[release]),
        )
        for one in found
    )


def _has(effects: Sequence[Effect], wanted: Effect) -> bool:
    return any(one.is_same(wanted) for one in effects)


def _sets_what_is_there(case: Replaced, judged: Sequence[Detailed]) -> bool:
    """Whether each release has under the name the very thing that is set, and no condition of its own decides that."""
    patch, library = case.patch, case.names.library
    kinds = (Kind.FUNCTION, Kind.CLASS, Kind.MODULE)
    value = patch.write.value if patch.write is not None else None
    if not _is_imported(value):  # what code worked out may be something else, made of that
        return False
    values = case.names.of(value, patch.frame) if value is not None else ()
    made = [one for one in values if one.kind in kinds] or [one for one in (patch.replacement,) if one is not None]
    if len(made) != 1 or made[0].node is not None or made[0].wrapped or not library.within(made[0].name):
        return False
    may_differ = made[0].kind != Kind.MODULE and any(one.assigns(case.target) for one in judged)
    if patch.sure != Confidence.CERTAIN or may_differ:
        return False
    there = [(release.define(case.target), release.define(made[0].name)) for release in judged]
    return all(one is not None and other is not None and one.name == other.name for one, other in there)


def _is_imported(value: ast.AST | None) -> bool:
    """Whether an expression is a dotted name, or a name that an import binds."""
    if isinstance(value, ast.Name):
        return all(isinstance(one.value, ast.alias) for one in scope_of(value).bindings(value.id))
    return value is None or isinstance(value, ast.Attribute)


def _qualified(scope: Any) -> str:
    """The name of a function within its file: `Model.install`."""
    names = []
    while scope.parent is not None:
        names.append(getattr(scope.node, "name", "<lambda>"))
        scope = scope.parent
    return ".".join(reversed(names))


def _quoted(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
