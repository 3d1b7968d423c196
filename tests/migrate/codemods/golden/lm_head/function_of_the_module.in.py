# golden: unsafe
import types

from megatron.core.models.gpt.gpt_model import GPTModel


# Hidden states go on to the loss,
# which projects them in chunks.
def _hand_through(self, input_, *args, **kwargs):
    """Skip the projection."""
    del args, kwargs  # not needed
    return input_, None


def skip_projection(model: GPTModel) -> None:
    """Let the model return hidden states."""
    model.output_layer.forward = types.MethodType(_hand_through, model.output_layer)


def kind() -> type:
    return types.SimpleNamespace
