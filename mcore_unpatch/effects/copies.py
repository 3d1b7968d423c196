"""What the body of what is replaced does now and the replacement does not: copies that lag, functions written anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mcore_unpatch.effects.records import Cause, Effect, Outcome, place_of
from mcore_unpatch.effects.replaced import Replaced
from mcore_unpatch.library.detailed import Definition, Detailed, How, likeness, split
from mcore_unpatch.library.digests import statement_digests
from mcore_unpatch.patches.records import Spelling

_A_COPY = 0.4  # of the statements in common; what shares less was written anew


class Copy(NamedTuple):
    """A replacement that began as the library's own function."""

    share: float
    missing: int  # statements that the newer release has, the older had not, and the copy lacks
    stale: int  # statements that it still has, and the newer release took out
    upstreamed: bool  # the new release has all that the copy added, and nothing of what it took out


def statements_of(case: Replaced) -> str:
    """The digests of the statements of a replacement."""
    package = case.names.library.packages()[0]
    return statement_digests(case.function, package).hex() if case.function is not None else ""


def copy_of(case: Replaced, old: Detailed, before: Definition | None, after: Definition | None) -> Copy | None:
    """What the replacement was copied from: the nearest of all releases' functions, if it is near."""
    own = statements_of(case)
    if not own or before is None:
        return None
    scored = [(likeness(one.statements, own), number, one) for number, one in enumerate(old.versions(before.name))]
    share, _, nearest = max(scored, default=(0.0, 0, before), key=lambda one: one[0])
    if share < _A_COPY:
        return None
    now = split(after.statements) if after is not None else []
    had, has, then = set(split(nearest.statements)), set(split(own)), set(split(before.statements))
    missing = sum(one not in then and one not in has for one in now)
    stale = sum(one in has and one not in now for one in then)
    upstreamed = bool(now) and has <= set(now) and (had - has).isdisjoint(now)
    return Copy(share, missing, stale, upstreamed)


def body_changes(case: Replaced, old: Detailed, new: Detailed, called_alike: bool) -> Iterator[Effect]:
    """What the step changes in the body of what is replaced; `called_alike`: both releases call it in the same way."""
    before, after = old.define(case.target), new.define(case.target)
    here = place_of(case.patch.place, case.patch.path)
    cause = Cause(case.target)
    if before is None or after is None:
        return
    if (before.letter, before.entry.detail, before.digest) == (after.letter, after.entry.detail, after.digest):
        return
    if case.patch.spelling == Spelling.SOURCE_REWRITE:
        yield Effect(Outcome.UNREAD, (new.label,), cause, here)
        return
    if case.function is None:
        if case.is_unread and not case.reaches_original:
            yield Effect(Outcome.UNREAD, (new.label,), cause, here)
        return
    if case.reaches_original:
        return
    copied = copy_of(case, old, before, after)
    if copied is not None and copied.upstreamed:
        yield Effect(Outcome.UPSTREAMED, (new.label,), cause, here)
    elif copied is not None and (copied.missing or copied.stale):
        words = (str(copied.missing), str(copied.stale))
        yield Effect(Outcome.BEHIND, (new.label,), cause._replace(words=words), here)
    elif copied is None and before.statements != after.statements:
        # What shares nothing with the function, and is called as before, stands for itself.
        shares = set(split(statements_of(case))).intersection(split(before.statements))
        if shares or not called_alike:
            yield Effect(Outcome.BODY_CHANGED, (new.label,), cause, here)


def class_asked(case: Replaced, old: Detailed, new: Detailed) -> Iterator[Effect]:
    """A class is replaced, and the newer release asks objects whether they are of it."""
    found = new.define(case.target)
    if found is None or found.letter != "c" or case.derives_from(found.name):
        return
    asks = (How.ASKED, How.COMPARED)
    then, now = ([use.place for use in some.uses(found.name) if use.how in asks] for some in (old, new))
    if now and not then:
        cause = Cause(found.name, now[0])
        yield Effect(Outcome.CLASS_ASKED, (new.label,), cause, place_of(case.patch.place, case.patch.path))
