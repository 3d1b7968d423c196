"""Wrappers around `forward` of a module or of a class that call the original once."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mcore_unpatch.codemods.codemod import Codemod, Example, Fix, Left, Match
from mcore_unpatch.editing.source import Source
from mcore_unpatch.repository.paths import is_test

_SPECS = re.compile(rb"\bModuleSpec\b|\bget_\w+_spec\b")
_MTP = "mtp-pre-hook"  # a row of what is known of Megatron's own ways


class ForwardHooks(Codemod):
    """The wrapper becomes a hook of PyTorch on the same module, or on all modules of the class."""

    name, title = "forward-hooks", "Wrappers around a module's forward"
    answers = ("MCU403", "MCU204", "MCU402")
    does = "a hook of PyTorch runs around the module's forward"
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
from megatron.core.transformer.transformer_block import TransformerBlock


def counted(block: TransformerBlock, log, run):
    original = block.forward

    def counting(*args, **kwargs):
        try:
            return original(*args, **kwargs)
        finally:
            log.count()

    block.forward = counting
    try:
        return run()
    finally:
        block.forward = original
""",
            after="""
from megatron.core.transformer.transformer_block import TransformerBlock


def counted(block: TransformerBlock, log, run):
    def counting(_module, _args, _output):
        log.count()

    handle = block.register_forward_hook(counting, always_call=True)
    try:
        return run()
    finally:
        handle.remove()
""",
            unsafe=True,
        ),
        Example(
            "MCU403",
            before="""
from contextlib import contextmanager

from megatron.core.transformer.transformer_block import TransformerBlock


def recording(original, outputs):
    def forward(self, *args, **kwargs):
        out = original(self, *args, **kwargs)
        outputs.append(out)
        return out

    return forward


@contextmanager
def recorded(outputs):
    original = TransformerBlock.forward
    TransformerBlock.forward = recording(original, outputs)
    try:
        yield
    finally:
        TransformerBlock.forward = original
""",
            after="""
from contextlib import contextmanager

from megatron.core.transformer.transformer_block import TransformerBlock
from torch.nn.modules.module import register_module_forward_hook


def recording(cls, outputs):
    def forward(self, _args, out):
        if not isinstance(self, cls):
            return None
        outputs.append(out)
        return out

    return forward


@contextmanager
def recorded(outputs):
    handle = register_module_forward_hook(recording(TransformerBlock, outputs))
    try:
        yield
    finally:
        handle.remove()
""",
            unsafe=True,
        ),
    )
    covers = """
`forward` of modules, or of a class of modules, replaced by a function that calls the original once, for good or until
it is put back
"""
    changes = """
- What begins with `out = original(*args, **kwargs)`, or returns something made of it, becomes a forward hook; what ends
  with `return original(...)` becomes a pre-hook, with the arguments that it passed. What does something before and
  after becomes both, where no local variable is set before the original and read after it.
- What stands in a `finally` around the original becomes a hook with `always_call=True`.
- Where the original is put back (`module.forward = original`, `del module.forward`) stands `handle.remove()`: in the
  function, in another one that shares what kept the original (an attribute of the object, a global), or in a loop over
  the originals of several modules.
- The function stands beside the assignment, is a method of the class around it, a lambda, in a `functools.partial`, or
  comes from a factory of the repository. That makes the hook then: its parameter for the original goes, in all its
  calls or in none.
- A wrapper of a class becomes PyTorch's hook for all modules (`register_module_forward_hook`), which asks for the
  class first. It does so where no class of Megatron's or of the repository's derives from that with a `forward` of its
  own, on all releases that the file is judged for. Of a class that specs name (MCU402), this is for wrappers that are
  put back, and for repositories that make no such spec.
- `types.MethodType(f, module)` and `f.__get__(module)` work as well; `functools.wraps` goes.
- Parameters with names of their own are read by position or by name, as Python binds them, with or without `*args` and
  `**kwargs` behind them. Keywords that the original does not get (`*args, images=None, **kwargs`) are taken out in a
  pre-hook. Values that are bound as defaults (`_width=width`) stay so.
"""
    applied = """
With `--unsafe-fixes`. Values and gradients are the same wherever the module is called. The other forms are left, with
the reason and the steps: an original that is put back where the hook may not be registered, that is kept on the module
or read from its class, a function of the file, `setattr`, another class for the module (`module.__class__ = ...`), a
condition, an `except` or a `with` around the original, other decorators, a return of None, a default that the original
may not have, a weight that is read before it, an original that is used for more, a function that is bound to another
object, objects that nothing shows to be modules (`x.training`, `named_modules()`, an annotation). So are two wrappers
of one method whose order would matter (two that change the output keep it; what one changes of the arguments, the hook
of the other would see), a module on which the repository registers hooks, and a module whose `forward` something in the
repository calls directly or hands on (`checkpoint(layer.forward, ...)`), or Megatron does (rotary embeddings): hooks do
not run there. Of a class so are wrappers that read arguments by name before the original, or change any: PyTorch's
pre-hook for all modules is given those by position alone.
"""
    by_hand = """
- **Order.** A hook runs behind those that the module has by then; the wrapper ran inside all of them
  (`prepend=True` puts it before them). Pre-hooks run in the order in which they were registered, where of wrappers the
  last was the first to run: look at what wraps one module twice, as a context manager within itself.
- **Weights.** Megatron's DDP and FSDP gather a module's parameters in pre-hooks. One that is registered before the
  model is wrapped runs before theirs: it must not read the values of weights.
- **Graphs.** No hook runs on a layer that a CUDA graph replays (`cuda_graph_impl`); a hook on a part of it runs once,
  while that is captured. With `cuda_graph_impl="local"` Megatron refuses pre-hooks on captured layers and their parts.
- **Whole models.** Megatron-FSDP up to 0.18 calls `forward` of the model that it wraps directly: with Float16Module in
  between the hooks of the model run, without it they do not.
- **Exceptions.** With `always_call=True` PyTorch gives the hook None as the output where `forward` raised, and makes a
  warning of what the hook itself raises then. It runs where another hook raised too, and neither for
  `KeyboardInterrupt` nor within `torch.compile`.
- **None.** A forward hook that returns None leaves the output as it is.
- **Classes.** PyTorch has its hooks for all modules for debugging and profiling: they are asked at every call of any
  module, and run before the hooks of the module itself. With the model at hand, register the hook on its modules:
  `for module in model.modules(): if isinstance(module, Class): module.register_forward_hook(f)`.
"""

    def fix(self, source: Source, match: Match) -> Iterator[Fix]:
        """A forward hook or a pre-hook; of the patches of MTP layers and of classes in specs, wrappers alone."""
        from mcore_unpatch.codemods.seams.hooks.wrappers import to_hook

        finding = match.situation.finding
        # Of a class for good, a spec of the repository's own names the class.
        in_specs = finding.rule == "MCU402" and finding.target.endswith(".forward")
        if in_specs and finding.shape == "class-attr" and not finding.temporary:
            in_specs = all(map(is_test, match.situation.files.saying(_SPECS)))
        if finding.seam == "hook" or finding.answer == _MTP or in_specs:
            made = to_hook(match.situation)
            if not isinstance(made, str):
                yield from made
            elif not in_specs:  # else what is said of the spec is said of it
                yield Left(made)
