"""Wrappers around `forward` of one module that call the original once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcore_unpatch.codemods.codemod import Example, Fix, Match, PatchCodemod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcore_unpatch.codemods.seams.patch import Patch, Rewritten
    from mcore_unpatch.codemods.source import Source

_MTP = "mtp-pre-hook"  # a row of what is known of Megatron's own ways


class ForwardHooks(PatchCodemod):
    """The wrapper becomes a hook of PyTorch on the same module."""

    name, title = "forward-hooks", "Wrappers around a module's forward"
    answers = ("MCU403", "MCU204")
    does = "a hook of PyTorch runs around the module's forward"
    not_plain = "it is not a plain assignment"
    examples = (
        Example(
            "MCU403",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_embeddings(model: GPTModel, factor):
    original = model.embedding.forward

    def scaled(*args, **kwargs):
        out = original(*args, **kwargs)
        return out * factor

    model.embedding.forward = scaled
""",
            after="""
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_embeddings(model: GPTModel, factor):
    def scaled(_module, _args, out):
        return out * factor

    model.embedding.register_forward_hook(scaled)
""",
            unsafe=True,
        ),
        Example(
            "MCU403",
            before="""
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    original = model.decoder.forward

    def detached(hidden_states, *args, **kwargs):
        hidden_states = hidden_states.detach()
        return original(hidden_states, *args, **kwargs)

    model.decoder.forward = detached
""",
            after="""
from megatron.core.models.gpt.gpt_model import GPTModel


def detach_encoder(model: GPTModel):
    def detached(_module, args, kwargs):
        hidden_states = args[0] if args else kwargs.pop("hidden_states")
        hidden_states = hidden_states.detach()
        return (hidden_states, *args[1:]), kwargs

    model.decoder.register_forward_pre_hook(detached, with_kwargs=True)
""",
            unsafe=True,
        ),
        Example(
            "MCU403",
            before="""
import time

from megatron.core.models.gpt.gpt_model import GPTModel


def timed(model: GPTModel):
    original = model.decoder.forward

    def wrapped(*args, **kwargs):
        start = time.perf_counter()
        out = original(*args, **kwargs)
        print(time.perf_counter() - start)
        return out

    model.decoder.forward = wrapped
""",
            unsafe=True,
        ),
    )
    covers = """
`module.forward` replaced on one module by a function beside it that calls the original once, at its beginning or end
"""
    changes = """
- What begins with `out = original(*args, **kwargs)`, or returns something made of it, becomes a forward hook; what ends
  with `return original(...)` becomes a pre-hook, with the arguments that it passed.
- Parameters with names of their own are read by position or by name, as Python binds them. Keywords that the original
  does not get (`*args, images=None, **kwargs`) are taken out in a pre-hook. Values that are bound as defaults
  (`_width=width`) stay so. `types.MethodType(f, module)` works as well; `functools.wraps` goes.
- What puts the original back becomes `handle.remove()`.
"""
    applied = """
With `--unsafe-fixes`. Values and gradients are the same wherever the module is called. The other forms are left, with
the reason and the steps: something both before and after the original, a condition, a `try` or a `with` around it,
other decorators, a return of None, an original that is used for more, objects that nothing shows to be modules
(`x.training`, `named_modules()`, an annotation). So are two wrappers of one method whose order would matter (two that
change the output keep it; what one changes of the arguments, the hook of the other would see), and a module whose
`forward(...)` something in the repository calls directly: hooks do not run there.
"""
    by_hand = """
- **Order.** A hook runs behind those that the module has by then; the wrapper ran inside all of them
  (`prepend=True` puts it before them).
- **Graphs.** Register the hook before the model is compiled or captured in a CUDA graph.
- **None.** A forward hook that returns None leaves the output as it is.
- **Classes.** A hook is for one module. For `Class.forward = wrapper`, register it where the model is built, on each
  module of that class: `for module in model.modules(): if isinstance(module, Class): module.register_forward_hook(f)`.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """Wrappers alone, of the patches of MTP layers."""
        finding = match.situation.finding
        if finding.seam == "hook" or finding.answer == _MTP:
            yield from super().fix(source, match)

    def rewrite(self, patch: Patch) -> Rewritten | str:
        """A forward hook or a pre-hook."""
        from mcore_unpatch.codemods.seams.hooks.order import to_hook

        return to_hook(patch)

    def steps(self, match: Match, because: str) -> str:
        """What the scanner says of such a wrapper."""
        steps = (f"{number}. {one}" for number, one in enumerate(match.situation.finding.steps, 1))
        return "\n".join([super().steps(match, because), *steps])
