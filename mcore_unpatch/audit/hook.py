"""Does Megatron's output hook arrive? One tiny forward with a sentinel processor, through all wrappers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from mcore_unpatch.audit.instances import chunks_of
from mcore_unpatch.audit.origin import origin_of
from mcore_unpatch.records import record

if TYPE_CHECKING:
    from mcore_unpatch.compat.hook.find import HookPath


@record
class HookOutcome:
    """How the sentinel fared. It is true if the processor was called.

    how: called; refuses (a forward raises on the keyword); swallows (a wrapper takes it and does not pass it on);
    ignores (the model takes it and never calls it); no output (this stage has none); failed (the forward raised).
    """

    how: str
    at: str = ""
    said: str = ""

    def __bool__(self) -> bool:
        return self.how == "called"

    def __str__(self) -> str:
        """One sentence."""
        if self.how == "called":
            return "The hook works: the processor was called."
        if self.how == "no output":
            return "This pipeline stage has no output; ask on the last one."
        if self.how == "failed":
            return f"The forward failed before the hook: {self.said}"
        return f"The hook is lost: {self.at} {self.how} output_processor.{f' {self.said}' if self.said else ''}"


class _Sentinel:
    called = False

    def __call__(self, **keywords: Any) -> Any:
        self.called = True
        return keywords["hidden_states"]


def hook_works(model: Any, inputs: Mapping[str, Any] | None = None) -> HookOutcome:
    """Whether `output_processor` arrives at the output of `model` (or of its chunks), and where it is lost.

    One forward over two tokens per rank, without gradients and in evaluation mode; every rank of a job has to call it.
    `inputs` are the arguments of the forward, where a wrapper wants others than a language model does.
    """
    from mcore_unpatch.compat.hook.find import find_language_model

    outcome = HookOutcome("no output")
    for chunk in chunks_of(model):
        path = find_language_model(chunk)
        if path.has_output:
            outcome = _on_forward(chunk, path, inputs)
            if not outcome:
                break
    return outcome


def _on_forward(chunk: Any, path: HookPath, inputs: Mapping[str, Any] | None) -> HookOutcome:
    sentinel = _Sentinel()
    received: list[Any] = []
    error: Exception | None = None

    def listen(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        if kwargs.get("output_processor") is sentinel:
            received.append(module)

    with ExitStack() as keep:
        for module in (*path.wrappers, path.model):
            keep.callback(module.register_forward_pre_hook(listen, with_kwargs=True, prepend=True).remove)
        given = keep.enter_context(_tiny_inputs(chunk, path.model, inputs))
        try:
            chunk(**given, output_processor=sentinel)
        except Exception as caught:
            error = caught
    if sentinel.called:
        return HookOutcome("called")
    last = received[-1] if received else chunk
    method = origin_of(last.forward)
    if isinstance(error, TypeError) and "output_processor" in str(error):
        return HookOutcome("refuses", str(method), _way_out(last is path.model, method.of_megatron))
    if error is not None:
        return HookOutcome("failed", said=f"{type(error).__name__}: {error}")
    if last is not path.model:
        return HookOutcome("swallows", str(method), "Pass the keywords on there, or use attach().")
    methods = (origin_of(getattr(last, name, last.forward)) for name in ("forward", "_postprocess"))
    foreign = next((one for one in methods if not one.of_megatron), method)
    return HookOutcome("ignores", str(foreign), "Remove that patch, or call the hook in it.")


def _way_out(is_model: bool, of_megatron: bool) -> str:
    if is_model and not of_megatron:
        return "It replaced or overrides Megatron's forward: remove that patch, or take the keywords and pass them on."
    if is_model:
        return (
            "Use attach() or provide_hook() of mcore_unpatch.compat (no release has the hook on HybridModel, and "
            "NVIDIA/Megatron-LM#7008 is open)."
        )
    return "Pass **kwargs on in that wrapper, or use attach(), which hooks the inner model directly."


@contextmanager
def _tiny_inputs(chunk: Any, model: Any, inputs: Mapping[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Arguments for one forward, with everything as it was before afterwards."""
    import torch

    weight, config = next(model.parameters()), model.config
    length = 2 * config.tensor_model_parallel_size
    ids = torch.zeros(1, length, dtype=torch.long, device=weight.device)
    positions = torch.arange(length, device=weight.device)[None]
    given = {"input_ids": ids, "position_ids": positions, "attention_mask": None, **(inputs or {})}
    modes = [(module, module.training) for module in chunk.modules()]
    is_first = getattr(model, "pre_process", True)
    with torch.no_grad():
        try:
            chunk.eval()
            if not is_first:
                rows = length // (config.tensor_model_parallel_size if config.sequence_parallel else 1)
                like = {"dtype": weight.dtype, "device": weight.device}
                model.set_input_tensor(torch.zeros(rows, 1, config.hidden_size, **like))
            yield given
        finally:
            for module, mode in modes:
                module.training = mode
            if not is_first:
                model.set_input_tensor(None)
