"""What can stand between a processor and the hook, each with its own way out."""


class HookError(RuntimeError):
    """The processor cannot run, or did not run, where the caller asked for it."""


class HookMissingError(HookError):
    """The model's `forward` has no `output_processor`: megatron-core is too old, or something replaced `forward`."""


class WrapperRefusesError(HookError):
    """A wrapper's `forward` takes neither the hook's keywords nor `**kwargs`."""


class HookSwallowedError(HookError):
    """The hook's keywords were accepted, the output stage returned, and the processor was never called."""


class HookBypassedError(HookError):
    """The model's `forward` was called as a method, past the hooks that a call of the module runs."""


class AttachmentError(HookError):
    """Two users want the hook of the same model at the same time."""


class UnsupportedHeadError(HookError):
    """The output layer is not a plain column-parallel product, so its weight alone does not give the logits."""


class MissingContextError(HookError):
    """The processor needs something that the hook is not given and the context does not hold."""
