# golden: unsafe
from mcore_unpatch.compat import HeadInputs, attach
from megatron.core.models.gpt.gpt_model import GPTModel


def patch_head(model: GPTModel):
    layer = model.output_layer
    if hasattr(layer, "_hook_handle"):
        return

    layer._hook_handle = attach(model, HeadInputs())


def unpatch_head(model: GPTModel):
    layer = model.output_layer
    if hasattr(layer, "_hook_handle"):
        layer._hook_handle.remove()
        del layer._hook_handle
