# golden: unsafe
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
