# golden: unsafe
from mcore_unpatch.compat import HeadInputs, attach
from megatron.core.models.gpt.gpt_model import GPTModel


def actor(model: GPTModel):
    attach(model, HeadInputs())


def critic(model: GPTModel):
    attach(model, HeadInputs())
