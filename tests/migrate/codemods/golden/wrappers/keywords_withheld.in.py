# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def with_images(model: GPTModel, enabled):
    original = model.forward

    if not enabled:

        def without(*args, images=None, boxes=None, **kwargs):
            return original(*args, **kwargs)

        model.forward = without
        return

    def merged(*args, images=None, boxes=None, **kwargs):
        embedded = model.embedding(input_ids=kwargs["input_ids"], position_ids=kwargs["position_ids"])
        if images is not None:
            embedded = embedded + images
        kwargs["decoder_input"] = embedded
        return original(*args, **kwargs)

    model.forward = merged
