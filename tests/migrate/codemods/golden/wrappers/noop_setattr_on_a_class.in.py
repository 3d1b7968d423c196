# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale(kind: type[GPTModel]):
    original = kind.forward

    def scaled(self, *args, **kwargs):
        return original(self, *args, **kwargs) * 2

    setattr(kind, "forward", scaled)
