# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def with_images(model: GPTModel, enabled):
    if not enabled:

        def without(_module, args, kwargs):
            kwargs.pop("images", None)
            kwargs.pop("boxes", None)
            return args, kwargs

        model.register_forward_pre_hook(without, with_kwargs=True)
        return

    def merged(_module, args, kwargs):
        images = kwargs.pop("images", None)
        kwargs.pop("boxes", None)
        embedded = model.embedding(input_ids=kwargs["input_ids"], position_ids=kwargs["position_ids"])
        if images is not None:
            embedded = embedded + images
        kwargs["decoder_input"] = embedded
        return args, kwargs

    model.register_forward_pre_hook(merged, with_kwargs=True)
