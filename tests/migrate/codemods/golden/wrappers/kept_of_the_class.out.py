# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def shift(model: GPTModel, by):
    embedding = model.embedding

    # the class's own
    def shifted(self, _args, embedded):
        return embedded + by * self.training

    embedding.register_forward_hook(shifted)


def detach(model: GPTModel):
    def detached(self, args, kwargs):
        hidden_states = args[0] if args else kwargs.pop("hidden_states")
        attention_mask = args[1] if len(args) > 1 else kwargs.pop("attention_mask", None)
        return (), {**kwargs, "hidden_states": hidden_states.detach(), "attention_mask": attention_mask}

    model.decoder.register_forward_pre_hook(detached, with_kwargs=True)
