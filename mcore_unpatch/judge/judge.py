"""The one judge: what a release of Megatron does to a patch and to everything that its replacement reaches."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile

from mcore_unpatch.judge import dropped, reached
from mcore_unpatch.judge.asked import missing
from mcore_unpatch.judge.callers import callers
from mcore_unpatch.judge.case import Case, taken_by
from mcore_unpatch.judge.demands import CALL, INSTALL, Demand
from mcore_unpatch.judge.instead import absent, advice, instead, leaf, nowhere, short, unfit
from mcore_unpatch.judge.mocks import may_create
from mcore_unpatch.judge.statement import CHANGES, IDLE, RAISES, Statement, labels, only_if
from mcore_unpatch.judge.supplied import is_used
from mcore_unpatch.library.fact import Call, Parameters, quoted
from mcore_unpatch.library.model import DEFAULT, Model, Usage
from mcore_unpatch.megatron import known, layout
from mcore_unpatch.megatron.versions import RELEASES, ROOT, minor, parse_version, show, within
from mcore_unpatch.scanner.sources.nodes import walk
from mcore_unpatch.scanner.sources.scopes import FunctionNode

_MOST_SAID = 20  # lines of one file that raise before a patch is called


def on(case: Case, model: Model) -> list[Statement]:
    """What one release does to a patch, what raises first."""
    said = [*_parameters(case, model), *_of_class(case, model), *_returns(case, model), *_demands(case, model)]
    said += _unheld(case, model)
    raises = any(statement.kind == RAISES for statement in said)
    said += dropped.hook(case.install, case.new.function, model, raises)
    said += _idle(case, model)
    return list(dict.fromkeys(said))


# --- callers of what is replaced -----------------------------------------------------------------------------------


def _parameters(case: Case, model: Model) -> Iterator[Statement]:
    """Calls of the library that the replacement does not take."""
    if case.taken is None or case.new.function is None:
        return
    lacking: dict[str, Usage] = {}
    for usage in case.callers(model):
        call, taken = usage.call, case.taken_from(usage, model)
        assert call is not None and taken is not None
        unknown = [name for name in call.keywords if name not in taken.names and not taken.any_keyword]
        lacking |= {name: usage for name in unknown if name not in lacking}
        wrong = "" if unknown else taken.misfit(call)
        if wrong:
            where = _where(case, model, wrong, lambda call, taken: taken and taken.misfit(call))
            name = getattr(case.new.function, "name", "")
            who = f"`{name}`" if name else "the replacement"
            text = f"`{short(usage.place)}` {unfit(wrong, who)}: TypeError on {where}"
            yield Statement(RAISES, text, "TypeError", *here(case), CALL, usage.place)
    if lacking:
        places = list(dict.fromkeys(usage.place for usage in lacking.values()))
        who = f"`{short(places[0])}`" + (" and others" if places[1:] else "")  # one place stands for each form of call
        where = _where(case, model, True, lambda call, _: not lacking.keys().isdisjoint(call.keywords))
        verb = "passes" if len(places) == 1 else "pass"
        text = f"lacks {quoted(lacking)}, which {who} {verb}: TypeError on {where}"
        kind, exception = RAISES, "TypeError"
        if case.is_alone and all(place.startswith(f"{ROOT}.inference.") for place in places):
            kind, exception = CHANGES, ""
            text += ", once Megatron's own inference is given this object"
        yield Statement(kind, text, exception, *here(case), CALL, places[0], also=tuple(places[1:]))


def _of_class(case: Case, model: Model) -> Iterator[Statement]:
    """Calls of the library that build the class that is replaced, or call its methods, and do not fit the new one."""
    target, (node, _) = case.target_on(model), case.own_class
    found, module = model.find(target), target.rpartition(".")[0]
    if found is not None and found.fact.kind == "value":  # `try` to import the class, or else None
        named = [one for one in model.ending(leaf(target)) if (fact := model.facts.get(one)) and fact.kind == "class"]
        found = model.find(named[0]) if len(named) == 1 else found
    if node is None or found is None or found.fact.kind != "class" or _is_default(case, model):
        return
    derived = case.derives_from(found.name)  # its methods are judged as overrides
    for method in (item for item in node.body if isinstance(item, ast.FunctionDef)):
        taken = taken_by(method)
        if taken is None or (derived and method.name != "__init__"):
            continue
        # Autograd's `apply` calls `forward`, a context first.
        shift, called = (1, "forward") if method.name == "apply" else (0, method.name)
        wrong: dict[Usage, str] = {}
        for usage in callers(model, f"{found.name}.{called}"):
            assert usage.call is not None
            if found.name != target and not usage.sure and not usage.place.startswith(f"{module}."):
                continue  # told by the name of the method alone, where the class has a name of its own
            caller = usage.place.rpartition(".")[0]
            if found.name in model.lineage(caller)[1:]:
                continue  # a subclass calls the class that it was made with
            if method.name != "__init__" and caller in model.lineage(found.name) and not case.derives_from(caller):
                continue  # what Megatron's class inherits, the new one does not
            if misfit := taken.misfit(replace(usage.call, positions=usage.call.positions - shift)):
                wrong[usage] = misfit
        for usage, misfit in wrong.items():
            name = node.name if method.name == "__init__" else f"{node.name}.{method.name}"
            said = unfit(misfit, f"`{name}`")
            who = short(usage.place) if usage.sure else usage.place.split(".")[-2]  # by name: another may be meant
            when = only_if(*wrong) or ("" if usage.sure else " where it does")
            text = f"`{who}` {said}: TypeError on megatron-core {model.label}{when}"
            yield Statement(RAISES, text, "TypeError", *here(case), CALL, usage.place)
            return


def _returns(case: Case, model: Model) -> Iterator[Statement]:
    """Callers that unpack another number of values than the replacement gives."""
    counts = case.new.returned_counts
    if case.new.function is None or 0 in counts or not counts or case.install.adds:
        return
    for usage in case.callers(model):
        wanted = usage.call.unpacked if usage.call is not None else 0
        if wanted and wanted not in counts:
            given = " or ".join(map(str, sorted(counts)))
            where = _where(case, model, wanted, lambda call, _: call.unpacked)
            text = f"returns {given} values where `{short(usage.place)}` unpacks {wanted}: ValueError on {where}"
            yield Statement(RAISES, text, "ValueError", *here(case), CALL, usage.place)
            return


def _idle(case: Case, model: Model) -> Iterator[Statement]:
    """What is never called: a name that the release does not have, or one that is known to be read before."""
    install = case.install
    since, reason = layout.INERT_SINCE.get((install.owner, install.attribute), ((99, 0), ""))
    if since <= parse_version(model.label):
        yield Statement(IDLE, f"has no effect on megatron-core {show(since)}+, where {reason}", "", *here(case))
    if _is_default(case, model):
        text = f"has no effect: `{leaf(install.owner)}` takes it as a default when it is imported, which is before this"
        yield Statement(IDLE, text, "", *here(case))
    if install.adds or not within(install.target) or known.lacking(model, install.target):
        return
    if not known.holds(model, case.target_on(model)) and not is_used(case.resolver, install.owner, install.attribute):
        now, when = instead(install.target, model), absent(install.target, model)
        is_later = when.startswith("before") and not known.holds(model, install.owner)
        if case.is_alone and (is_later or short(now or "") == short(install.target)):
            return  # an object is one of the class that the release has, if there is one
        if when and not install.attribute.startswith("__"):
            hint = advice(install.target, now, when)
            text = f"`{leaf(install.target)}` does not exist {when}"
            if install.shape == "mock" and not may_create(install.node):
                text += f"; {hint}" if hint else ""
                yield Statement(RAISES, text, "AttributeError", *here(case), INSTALL, trigger="when it is mocked")
            else:
                yield Statement(
                    IDLE, f"{text}, so no code of Megatron calls the replacement", "", *here(case), instead=hint
                )


def _unheld(case: Case, model: Model) -> Iterator[Statement]:
    """What no release has, read from a module that this one has: a class to be patched, a function to be wrapped."""
    install = case.install
    wrapped = install.target if not install.adds and install.target.startswith(f"{ROOT}.") else ""
    name = {"class-attr": install.owner, "module-attr": wrapped}.get(install.shape, "")
    if known.holds(model, name.rpartition(".")[0]) and not known.ever(name) and not known.holds(model, name):
        yield Statement(RAISES, nowhere(name), "AttributeError", *here(case), INSTALL, trigger="where it is patched")


def _is_default(case: Case, model: Model) -> bool:
    """Whether a module imports the name that is set in it, and reads it once, as a default of a field or parameter."""
    fact, uses = model.facts.get(case.target_on(model)), model.uses(case.target_on(model))
    return fact is not None and fact.kind == "import" and bool(uses) and all(use.how == DEFAULT for use in uses)


# --- what the replacement asks of Megatron --------------------------------------------------------------------------


def _demands(case: Case, model: Model) -> Iterator[Statement]:
    """What raises in the code that a patch stands in and brings; of what runs before it is called, the first few."""
    said: set[tuple[str, int, str]] = set()
    calls = [usage.call for usage in case.callers(model) if usage.call is not None]
    for demand, statements in case.raised_on(model):
        if demand.when != CALL and len(said) >= _MOST_SAID:
            continue  # the first has stopped the file
        if case.calls_ours(demand, model):
            statements = list(missing(demand.on(model), model))
        if demand.when == CALL and not _lets(case, demand, calls, model):
            continue
        for statement in statements:
            which = demand.name if statement.exception == "TypeError" else ""  # of a line several calls may raise
            if (place := (statement.exception, statement.line, which)) not in said:
                said.add(place)
                yield replace(statement, demand=demand)


def _lets(case: Case, demand: Demand, calls: Sequence[Call], model: Model) -> bool:
    """Whether the library's own calls of the replacement get as far as a demand in it; none tell nothing."""
    around, function = demand.at.scope.function, case.new.function
    if not calls or around is None or around.node is not function or not isinstance(function, FunctionNode):
        return True
    given = _left_out(function, calls, case.is_bound or case.has_own_object, demand)
    return not given or reached.on(model, demand.at._replace(given=given), demand.tests)


def _left_out(function: FunctionNode, calls: Sequence[Call], bound: bool, demand: Demand) -> dict[str, object]:
    """The parameters with a plain default that nobody passes or sets: no call, and not the function's file."""
    spec = function.args
    names = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
    defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
    defaults |= {one.arg: value for one, value in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if value}
    plain: dict[str, object] = {name: one.value for name, one in defaults.items() if isinstance(one, ast.Constant)}
    if not plain or any(call.star or call.double_star for call in calls):
        return {}
    passed = {name for call in calls for name in (*call.keywords, *names[: call.positions + bound])}
    home = demand.at.home
    passed |= home.once(_keywords, home.model.tree) | home.once(_stored, function)
    return {name: value for name, value in plain.items() if name not in passed}


def _keywords(tree: ast.Module) -> set[str]:
    """The keywords of all calls of a file."""
    return {word.arg for node in walk(tree) if isinstance(node, ast.Call) for word in node.keywords if word.arg}


def _stored(function: FunctionNode) -> set[str]:
    """The names that a function sets."""
    return {node.id for node in walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


# --- words ----------------------------------------------------------------------------------------------------------


def here(case: Case) -> tuple[str, int]:
    """Where a patch stands."""
    return case.resolver.model.path, getattr(case.install.node, "lineno", 0)


def _where(case: Case, model: Model, wrong: object, of: Callable[[Call, Parameters | None], object]) -> str:
    """The releases around the one that is judged on which that is wrong of a call on the same condition, and that.

    As `0.13 to 0.15`, `0.18+`. What is before the first may lack the package, which a checkout of it has.
    """

    def terms(other: Model) -> str | None:
        every = ((usage, usage.call, case.taken_from(usage, other)) for usage in case.callers(other))
        calls = [usage for usage, call, taken in every if call is not None and of(call, taken) == wrong]
        return only_if(*calls) if calls else None

    condition = terms(model) or ""
    if model.label not in RELEASES:
        return f"megatron-core {model.label}{condition}"
    own = minor(parse_version(model.label))
    every = {minor(parse_version(other.label)): other for other in known.minors()}
    before = [version for version in reversed(every) if version < own]
    later = [version for version in every if version > own]
    first, last = ([own, *takewhile(lambda one: terms(every[one]) == condition, some)][-1] for some in (before, later))
    next_older = [number for number in before if number < first][:1]
    unread = any(known.lacking(every[number], case.install.target) for number in next_older)
    if last == max(every):
        return f"megatron-core {show(first)}+{', maybe before' if unread else ''}{condition}"
    return f"megatron-core {show(first)}{f' to {show(last)}' if first != last else ''}{condition}"


def texts(statements: Iterable[Statement], case: Case, *kinds: str) -> list[str]:
    """The sentences of some kinds, each with its line where that is another than the patch's."""
    path, line = here(case)
    return [statement.seen_from(path, line) for statement in statements if statement.kind in kinds or not kinds]


def texts_on(by_release: Mapping[Model, list[Statement]], case: Case) -> list[str]:
    """The sentences of several releases: what each of some says of itself is said once, with all of them."""
    releases: dict[str, list[Model]] = {}
    for model, statements in by_release.items():
        own = re.compile(rf"(?<=megatron-core ){re.escape(model.label)}(?![\d.+])")
        for text in texts(statements, case):
            releases.setdefault(own.sub("\0", text), []).insert(0, model)
    order = list(by_release)[::-1]
    return [text.replace("\0", labels(models, order)) for text, models in releases.items()]
