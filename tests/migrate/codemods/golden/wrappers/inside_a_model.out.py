# golden: unsafe
"""The model divides what goes into its head; whoever comes later sees what was passed, and adds to what comes out."""

from megatron.core.models.gpt.gpt_model import GPTModel


class Scaled(GPTModel):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if getattr(self, "post_process", False):
            layer = self.output_layer
            original = layer.forward

            def divided(x, *a, **k):
                return original(x / 4, *a, **k)

            layer.forward = divided


def add_to_logits(model: GPTModel, factor):
    layer = model.output_layer

    def forward(_module, a, k, outputs):
        x = a[0] if a else k["x"]
        output, bias = outputs
        return output + x.sum(-1, keepdim=True) * factor, bias

    layer.register_forward_hook(forward, with_kwargs=True)
