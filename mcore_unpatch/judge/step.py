"""What the step from one release to another does to a patch: what raises there, and what changes without an error."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from mcore_unpatch.judge import dropped
from mcore_unpatch.judge.case import Case
from mcore_unpatch.judge.changed import changed
from mcore_unpatch.judge.demands import CALL
from mcore_unpatch.judge.instead import leaf, short
from mcore_unpatch.judge.judge import here, on
from mcore_unpatch.judge.reached import turned
from mcore_unpatch.judge.statement import CHANGES, IDLE, STOPS, Statement
from mcore_unpatch.library.fact import Fact
from mcore_unpatch.library.model import ASKED, COMPARED, Model
from mcore_unpatch.megatron.known import ever as is_in_some_release

_MOST_SHOWN = 50  # characters of a condition


def between(case: Case, old: Model, new: Model) -> list[Statement]:
    """What the step from one release to another does to a patch."""
    before = {_bare(statement, old) for statement in on(case, old)}
    ever = is_in_some_release(case.install.owner)  # what no release has runs on none: the one in use is another
    now = [one for one in on(case, new) if one.demand is None or is_in_some_release(one.demand.name)]
    said = [replace(statement, before=ever and _bare(statement, new) in before) for statement in now]
    said = [_stopped(statement, case, old) for statement in said]
    said += dropped.keywords(case.install, case.new, case.taken, old, new)
    # What else runs where it is installed is no part of it, but for the imports that it reads.
    own = [one for one in case.demands if one.when == CALL or (one.module and leaf(one.name) in case.new.words)]
    asked = [demand for demand in own if not case.calls_ours(demand, new)]
    said += [statement for demand in asked for statement in changed(demand, old, new)]
    said += _taken_apart(case, old, new)
    said += _callers(case, old, new)
    said += _asked_by_class(case, old, new)
    said += _turned(case, old, new)
    return list(dict.fromkeys(said))


def _stopped(statement: Statement, case: Case, old: Model) -> Statement:
    """What the newer release never calls: a silent change where the older one is known to call or read it."""
    target = case.target_on(old)
    uses = (*old.calls(target), *old.uses(target)) if old.find(target) is not None else ()
    if statement.kind != IDLE or statement.before or not uses:
        return statement
    text = f"{statement.text}; `{short(uses[0].place)}` of {old.label} uses it: it stops without an error"
    return replace(statement, kind=STOPS, text=text)


def _bare(statement: Statement, model: Model) -> tuple[object, ...]:
    """A statement without its release."""
    text = statement.text.partition(" on megatron-core")[0].partition(" after ")[0].replace(model.label, "")
    return statement.kind, statement.exception, statement.line, statement.when, text


def _callers(case: Case, old: Model, new: Model) -> Iterator[Statement]:
    """A name that the newer release has and no longer calls, or that a new function of its module calls too."""
    install, target = case.install, case.install.target
    had, known = old.facts.get(target), new.find(target)
    if install.adds or known is None or had is None or leaf(target).startswith("__"):
        return
    fact = new.facts.get(target, Fact("import"))  # where a star brings it
    then, now = old.calls(target), new.calls(target)
    on_new = f"megatron-core {new.label}"
    said = ""
    of_module = new.facts.get(install.owner, fact).kind == "module"
    if had.kind in ("function", "class") and fact.kind == "import" and of_module:
        said = f"is only imported there on {on_new}; `{known.name.rpartition('.')[0]}` defines it, and calls its own"
    elif had.kind == "function" and (other := fact.trait("alias")):
        said = f"is only another name of `{leaf(other)}` on {on_new}, and nothing calls it by this one"
    elif fact.kind == had.kind == "import" and old.uses(target) and not new.uses(target):
        said = f"nothing in `{leaf(install.owner)}` of {on_new} uses it any more"
    elif leaf(target).startswith("_") and then and not now and not new.uses(target):
        said = f"nothing in {on_new} calls it any more; `{short(then[0].place)}` of {old.label} did"
    elif install.shape == "module-attr" and fact.kind == "function":
        fresh = [one.place for one in now if one.place.startswith(f"{install.owner}.") and old.find(one.place) is None]
        said = f"`{leaf(fresh[0])}`, which {old.label} does not have, calls it too" if fresh else ""
    if said:
        yield Statement(CHANGES, said, "", *here(case))


def _taken_apart(case: Case, old: Model, new: Model) -> Iterator[Statement]:
    """What the original returns, indexed or handed on one by one, where it may have another number of values now."""
    then, now = (model.find(case.target_on(model)) for model in (old, new))
    if then is None or now is None or then.fact.digest == now.fact.digest or case.new.function is None:
        return
    before, after = then.fact.trait("gives"), now.fact.trait("gives")
    if before == after and after is not None:
        return
    nodes = list(ast.walk(case.new.function))
    results = {id(call) for call in case.original_calls}
    listed = {id(node) for node in nodes if _is_list_of(node, results)}
    names = {
        target.id: id(node.value) in listed
        for node in nodes
        if isinstance(node, ast.Assign) and id(node.value) in results | listed
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in nodes:
        if not isinstance(node, ast.Subscript | ast.Starred):
            continue
        if isinstance(node, ast.Subscript) and isinstance(getattr(node.slice, "value", None), str):
            continue  # of a dict, of whatever size
        held = names.get(getattr(node.value, "id", ""))  # whether a name is a list of them, None for others
        first = isinstance(node, ast.Subscript) and getattr(node.slice, "value", None) == 0
        if id(node.value) in results or held is False or (held and not first):
            gives = f"gives {after} values" if after else "changed, and may give another number of values"
            text = f"takes the result of the original apart, which {gives} on megatron-core {new.label}"
            yield Statement(CHANGES, text, "", case.resolver.model.path, node.lineno, CALL)
            return


def _is_list_of(node: ast.AST, results: set[int]) -> bool:
    """`list(original(...))`: any number of values goes through that."""
    made = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("list", "tuple")
    return made and any(id(part) in results for part in node.args)  # type: ignore[attr-defined]


def _turned(case: Case, old: Model, new: Model) -> Iterator[Statement]:
    """Branches that the older release did not take, of a replacement that stands for itself.

    One that calls the original asks such things to call it rightly.
    """
    for function, home in case.functions if not case.reaches_original else ():
        for test, holds in turned(function, home, old, new):
            words = ast.unparse(test)
            shown = f"`{words}`" if len(words) <= _MOST_SHOWN else "the condition"
            now = f"is {str(holds).lower()} on megatron-core {new.label}"
            text = f"{shown} {now}, and was not on {old.label}: other code of yours runs"
            yield Statement(CHANGES, text, "", home.model.path, test.lineno, CALL)


def _asked_by_class(case: Case, old: Model, new: Model) -> Iterator[Statement]:
    """A class is replaced, and the newer release asks objects whether they are of it."""
    known = new.find(case.target_on(new))
    if known is None or known.fact.kind != "class" or case.derives_from(known.name):
        return
    then, now = ([one.place for one in some.uses(known.name) if one.how in (ASKED, COMPARED)] for some in (old, new))
    if now and not then:
        text = f"`{short(now[0])}` of megatron-core {new.label} asks whether objects are of `{leaf(known.name)}`"
        yield Statement(CHANGES, text, "", *here(case))
