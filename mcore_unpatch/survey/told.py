"""The patches of a repository as findings: what the core found and judged, in the words that reports know.

This goes when the reports read patches and effects themselves.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mcore_unpatch.code.module import scope_of
from mcore_unpatch.code.syntax import parent_of, spelled, walk
from mcore_unpatch.code.values import Kind
from mcore_unpatch.effects.records import Effect, Outcome, When
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.effects.traits import Traits
from mcore_unpatch.findings.finding import Finding, Live, Related
from mcore_unpatch.library.detailed import Detailed
from mcore_unpatch.library.interface import SymbolKind
from mcore_unpatch.megatron import parts, slots
from mcore_unpatch.megatron.answers import Answer
from mcore_unpatch.megatron.versions import Version, show
from mcore_unpatch.patches.lives import live_of
from mcore_unpatch.patches.records import Confidence, Patch, Spelling
from mcore_unpatch.say.effects import sentence
from mcore_unpatch.survey.core import Core
from mcore_unpatch.survey.own_models import dropped_hook
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
_HOW = {
    Spelling.CLASS_ATTRIBUTE: "on the class",
    Spelling.CLASS_OF_INSTANCE: "on the class of an instance",
    Spelling.INSTANCE_ATTRIBUTE: "on an instance",
    Spelling.SETATTR: "with setattr",
    Spelling.MODULE_ATTRIBUTE: "in its module",
    Spelling.SYS_MODULES: "through sys.modules",
    Spelling.STRING_TARGET: "by its dotted name",
    Spelling.SOURCE_REWRITE: "with rewritten source",
    Spelling.MOCK: "with a mock",
}
_FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__")
_THERE = "Megatron has just that there: it changes nothing, unless it takes another patch off"
_AS_TEXT = re.compile(r"""(?:__version__\s*[<>]=?\s*["']|["']\s*[<>]=?\s*[\w.]*__version__)""")
_HOOK_FOR_A_WHILE = (
    "register PyTorch's forward (pre-)hook for as long, and remove its handle after that (any megatron-core)"
)
_KEEP_HANDLE = "Keep the handle that it returns, and call `handle.remove()` where the original is put back."
_FLAG_FOR_A_WHILE = (
    "name a subclass in the `ModuleSpec` that does this while a flag of yours is set (any megatron-core)"
)
_SET_FLAG = "Let it do this only while a flag of yours is set: set it here, clear it where the original is put back."
_MOST_CONDITIONS = 3  # that are named
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
        case, versions = self._judge.cases[patch], self._versions(patch.path)
        live = Live(*live_of(self._judge.guards, patch, self._megatrons.releases))
        releases = {version: self._megatrons.release(version) for version in versions if live.on(version)}
        effects = {version: self._judge.on(patch, release) for version, release in releases.items()}
        said = list(dict.fromkeys(one for version in reversed(effects) for one in effects[version]))
        raising = [one for one in said if one.raises]
        in_calls = (one.kind != Outcome.NOT_TAKEN and one.place.when == When.CALL for one in raising)
        asked = [one.cause.name if in_call else "" for one, in_call in zip(raising, in_calls, strict=True)]
        no_hook = dropped_hook(case, releases.values())
        breaks = [*dict.fromkeys(_words(one, effects) for one in said), *filter(None, [no_hook])]
        judged = list(dict.fromkeys(releases.values())) or [self._megatrons.every[-1]]
        row = self._verdicts.row(case, judged)
        way, steps = self._answer(case, judged, row) if row is not None else (None, ())
        node, text = patch.place, self._text(patch)
        scope = scope_of(patch.write.place if patch.write is not None else node)
        outermost = scope.outermost_function()
        around = scope.function()
        above = parent_of(node)
        end_line = (above if isinstance(above, _STORES) else node).end_lineno or node.lineno
        return Finding(
            rule=(row.rule if row is not None else "") or self._by_spelling(case),
            path=patch.path,
            line=node.lineno,
            column=text.characters(node.lineno, node.col_offset) + 1,
            end_line=end_line,
            target=patch.target,
            shape=str(patch.spelling),
            seam=row.seam if row is not None else "none",
            confidence=str(patch.sure),
            temporary=patch.temporary,
            message="; ".join([*self._message(case, judged), *breaks, *_when(live, versions, text)]),
            replacement=way,
            answer=row.name if row is not None else "",
            steps=steps,
            related=tuple(self._related(case)),
            live=live,
            installed_by=outermost.node.name if outermost is not None and not outermost.node.decorator_list else "",
            scope=_qualified(around) if around is not None else "",
            breaks=tuple(breaks),
            effect=_effect(said, live, case) or ("changes" if no_hook else ""),
            fails=tuple(show(version) for version, some in effects.items() if any(one.raises for one in some)),
            callers=tuple(dict.fromkeys(one.cause.by if one.kind == Outcome.NOT_TAKEN else "" for one in raising)),
            asked=tuple(dict.fromkeys(asked)) if all(asked) else (),
            affected=tuple(show(version) for version, some in effects.items() if some),
            hands_on=bool(case.originals.calls),
            patches_more=patch.spelling == Spelling.SYS_MODULES and patch.sure == Confidence.LIKELY,
            upstream_has=_THERE if _sets_what_is_there(case, judged) else "",
            source=text.between(node.lineno, end_line),
        )

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

    def _message(self, case: Replaced, judged: Sequence[Detailed]) -> Iterator[str]:
        """What it does to what, and how sure that is."""
        patch, write = case.patch, case.patch.write
        possible = patch.sure == Confidence.POSSIBLE
        short = ".".join(patch.target.split(".")[-1 if possible else -2 :])  # of which class is not known
        part = getattr(write.place, "attr", "") if write is not None else ""
        if patch.spelling == Spelling.SUBMODULE:
            yield f"replaces the submodule `{short}`"
        elif write is not None and write.value is None and patch.spelling != Spelling.MOCK:
            yield f"removes `{short}`"
        elif case.adds or all(release.has(release.name_of(patch.target)) is False for release in judged):
            yield f"adds `{short}` {_HOW[patch.spelling]}"
        elif part in _FUNCTION_PARTS:
            yield f"replaces `{part}` of `{short}`"
        else:
            yield f"replaces `{short}` {_HOW[patch.spelling]}"
        if patch.sure != Confidence.CERTAIN:
            yield f"{patch.sure}, judging by " + ("the name of the method" if possible else "how it is used")

    def _answer(self, case: Replaced, judged: Sequence[Detailed], row: Answer) -> tuple[str, tuple[str, ...]]:
        """The way and the steps of a row; what is put on for a while has to be taken off again."""
        words = self._words_of(case, judged, row)
        way, steps = row.way.format(**words), tuple(step.format(**words) for step in row.steps)
        if not case.patch.temporary or not steps or (row.seam != "hook" and row.name != "spec-method"):
            return way, steps
        if row.seam == "hook":
            here = (step.replace("where the model is built", "at this place") for step in steps[:-1])
            return _HOOK_FOR_A_WHILE, (*here, _KEEP_HANDLE, steps[-1])
        return _FLAG_FOR_A_WHILE, (*steps[:-1], _SET_FLAG, steps[-1])

    def _words_of(self, case: Replaced, judged: Sequence[Detailed], row: Answer) -> dict[str, str]:
        """What the steps of a row say of this place."""
        function, patch, write = case.function, case.patch, case.patch.write
        traits = Traits(case, judged, parts.TELLS)
        name = "the replacement"
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"`{function.name}` (line {function.lineno})"
        own_line, back_line = traits.own_lines
        source = self._judge.names.index.sources[patch.path]
        value = write.value if write is not None else None
        words = {
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
        if "in-specs" in row.traits or "slot" in row.traits:
            words |= self._slots(case, judged)
        return words

    def _slots(self, case: Replaced, judged: Sequence[Detailed]) -> dict[str, str]:
        """And of the specs that name the class."""
        symbol = case.names.library.symbol(case.target)
        name = symbol.name if symbol is not None and symbol.kind == SymbolKind.CLASS else case.owner
        models = tuple(self._megatrons.model(release) for release in judged)
        said = {"holder": slots.holder(case.owner, case.attribute) or "", "unreached": ""}
        said |= {"classes": f"`{name.rpartition('.')[2]}`", "slots": "where your specs name it"}
        words = {"classes": slots.classes, "slots": slots.where, "unreached": slots.unreached}
        return said | {word: say(name, models) for word, say in words.items() if slots.named(name, models)}


def _words(effect: Effect, effects: dict[Version, Any]) -> str:
    """An effect in words; with the releases, where it is not on all of them."""
    on = [show(version) for version, some in effects.items() if any(one.is_same(effect) for one in some)]
    said = sentence(effect).rstrip(".")
    return said if len(on) == len(effects) else f"{said} (on {', '.join(on)})"


def _effect(said: Sequence[Effect], live: Live, case: Replaced) -> str:
    """What the releases do to a patch; one that runs only where its name is missing fills a gap, as it is meant to."""
    if any(one.raises for one in said):
        return "breaks"
    return "changes" if any(one.differs or one.kind == Outcome.NEVER_CALLED for one in said) else ""


def _sets_what_is_there(case: Replaced, judged: Sequence[Detailed]) -> bool:
    """Whether each release has under the name the very thing that is set, and no condition of its own decides that."""
    patch, library = case.patch, case.names.library
    kinds = (Kind.FUNCTION, Kind.CLASS, Kind.MODULE)
    values = case.names.of(patch.write.value, patch.frame) if patch.write is not None else ()
    made = [one for one in values if one.kind in kinds] or [one for one in (patch.replacement,) if one is not None]
    if len(made) != 1 or made[0].node is not None or not library.within(made[0].name):
        return False
    may_differ = made[0].kind != Kind.MODULE and any(one.assigns(case.target) for one in judged)
    if patch.sure != Confidence.CERTAIN or may_differ:
        return False
    there = [(release.define(case.target), release.define(made[0].name)) for release in judged]
    return all(one is not None and other is not None and one.name == other.name for one, other in there)


def _when(live: Live, versions: Sequence[Version], text: Text) -> Iterator[str]:
    """On which releases a patch is installed, where not on all, and what else that depends on."""
    for guard in live.guards:
        if not guard.path and _AS_TEXT.search(text.between(guard.line, guard.line)):
            yield f"line {guard.line} compares versions as text, to which 0.9 is newer than 0.19: parse both"
    if versions and not any(map(live.on, versions)):
        yield f"never runs on megatron-core {' or '.join(map(show, versions))}{live.elsewhere}"
    elif str(live) != "any":
        yield f"runs only on megatron-core {live}"
    yield from live.depends[:_MOST_CONDITIONS]
    more = len(live.depends) - _MOST_CONDITIONS
    if more > 0:
        yield f"{more} more condition{'s' * (more > 1)} above it"


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
