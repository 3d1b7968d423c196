"""Wrappers around `forward` of a module that call the original first."""

from __future__ import annotations

from collections.abc import Iterator

from mcore_unpatch.codemods.codemod import Codemod, Example, Fix, Match
from mcore_unpatch.editing.source import Source


class ForwardHooks(Codemod):
    """The wrapper becomes a hook of PyTorch on the same module."""

    name, title = "forward-hooks", "Wrappers around a module's forward"
    answers = ("MCU403", "MCU204")
    does = "a hook of PyTorch runs behind the module's forward"
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
from megatron.core.transformer.transformer_block import TransformerBlock


def add_adapter(block: TransformerBlock, adapter):
    original = block.forward

    def adapted(hidden_states, *args, **kwargs):
        out = original(hidden_states, *args, **kwargs)
        return out + adapter(hidden_states)

    block.forward = adapted
""",
            after="""
from megatron.core.transformer.transformer_block import TransformerBlock


def add_adapter(block: TransformerBlock, adapter):
    def adapted(_module, args, kwargs, out):
        hidden_states = args[0] if args else kwargs["hidden_states"]
        return out + adapter(hidden_states)

    block.register_forward_hook(adapted, with_kwargs=True)
""",
            unsafe=True,
        ),
    )
    covers = """
`module.forward = f`, for good, where `f` calls the original first, with the arguments that it was given, and returns
something made of the output
"""
    changes = """
- `out = original(*args, **kwargs)` is what the hook is given.
- Parameters with names of their own are read by position or by name, as Python binds them.
- What kept the original goes, and `functools.wraps`.
"""
    applied = """
With `--unsafe-fixes`. Values and gradients are the same wherever the module is called. The original is kept under a
local name, and the function is defined, in the block of the assignment, which is in no loop. Every other form is by
hand: what does something before the original, what is put back, factories, lambdas, methods, wrappers of a class. So is
a module whose `forward` something in the repository, or Megatron, calls directly: hooks do not run there; one on which
the repository registers hooks; and one that another kind of wrapper is around.
"""
    by_hand = """
- **Before the original.** What changes arguments is a pre-hook: `register_forward_pre_hook(f, with_kwargs=True)`, which
  returns `(args, kwargs)`. Pre-hooks run in the order in which they were registered, where of wrappers the last was the
  first to run. Megatron's DDP and FSDP gather parameters in pre-hooks: one that is registered before the model is
  wrapped must not read the values of weights. With `cuda_graph_impl="local"` Megatron refuses them on captured layers.
- **For a while.** `handle = module.register_forward_hook(f)`, and `handle.remove()` where the original was put back.
- **In a `finally`.** `register_forward_hook(f, always_call=True)`: where `forward` raised the output is None.
- **Classes.** With the model at hand, register the hook on its modules: `for module in model.modules(): if
  isinstance(module, Class): module.register_forward_hook(f)`.
- **Order.** A hook runs behind those that the module has by then; the wrapper ran inside all of them
  (`prepend=True` puts it before them).
- **Graphs.** No hook runs on a layer that a CUDA graph replays (`cuda_graph_impl`); a hook on a part of it runs once,
  while that is captured.
- **Whole models.** Megatron-FSDP up to 0.18 calls `forward` of the model that it wraps directly: with Float16Module in
  between the hooks of the model run, without it they do not.
- **None.** A forward hook that returns None leaves the output as it is.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """A forward hook; of the patches of MTP layers wrappers alone."""
        from mcore_unpatch.codemods.seams.hooks import to_hook

        if match.situation.finding.seam == "hook":
            yield from to_hook(match.situation)
