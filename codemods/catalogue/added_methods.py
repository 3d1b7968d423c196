"""Methods that are added to Megatron's classes and objects, and that Megatron never calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, Match, PatchCodemod

if TYPE_CHECKING:
    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten


class AddedMethods(PatchCodemod):
    """The function is called with the object."""

    name, title = "added-methods", "Methods added to Megatron's objects"
    answers = ("MCU404",)
    does = "the function is called with the object"
    not_plain = "it is not a plain assignment"
    examples = (
        Example(
            "MCU404",
            before="""
import types

from megatron.core.timers import Timers


def write_to_wandb(self, writer, names):
    writer.log({name: self(name).elapsed() for name in names})


def make_timers(level):
    timers = Timers(level, "minmax")
    timers.write_to_wandb = types.MethodType(write_to_wandb, timers)
    return timers


def log(timers, writer):
    timers.write_to_wandb(writer, ["forward", "backward"])
""",
            after="""
from megatron.core.timers import Timers


def write_to_wandb(self, writer, names):
    writer.log({name: self(name).elapsed() for name in names})


def make_timers(level):
    timers = Timers(level, "minmax")
    return timers


def log(timers, writer):
    write_to_wandb(timers, writer, ["forward", "backward"])
""",
            unsafe=True,
        ),
        Example(
            "MCU404",
            before="""
from megatron.core.timers import Timers


def write_to_wandb(self, writer): ...


Timers.write_to_wandb = write_to_wandb


def log(timers, writer):
    if (write := getattr(timers, "write_to_wandb", None)) is not None:  # some timers have none
        write(writer)
    timers.write_to_wandb(writer)
""",
            unsafe=True,
        ),
    )
    covers = """
a function of the file that is added to a Megatron class, or bound to an object of one, under a name that no release of
Megatron has
"""
    changes = """
- `obj.name(...)` becomes `function(obj, ...)`, and the assignment goes.
- A function that stands inside another one moves before it if its callers could not name it there, and if it uses
  nothing of the function around it.
"""
    applied = """
With `--unsafe-fixes`. Left, with all lines that name it, where anything but a call in the same file does: another file,
`getattr` or a text (Megatron-Bridge's timers), a second assignment of the name (ROLL's `offload_states`, one for each
class of optimizer), a class with a method of that name. Then nobody can tell here which objects have it.
"""
    by_hand = """
- An object that had not got the method raised `AttributeError`; the function runs.
- Where one name stands for a function for each class, write one function that asks `isinstance` and calls them.
"""

    def rewrite(self, patch: Patch) -> Rewritten | str:
        """Calls of the function."""
        from mcore_unpatch.codemods.seams.added import to_calls

        return to_calls(patch)

    def steps(self, match: Match, because: str) -> str:
        """The reason, and the lines that name the method."""
        from mcore_unpatch.codemods.seams.added import steps
        from mcore_unpatch.codemods.seams.patch import find_patch

        return steps(find_patch(match.situation), because, match.situation.files)
