# golden: unsafe
from megatron.core import tensor_parallel
from megatron.core.models.gpt.gpt_model import GPTModel


class Provider:
    def build(self, config, spec):
        self.model = GPTModel(config, spec, 64, 16)
        head = tensor_parallel.ColumnParallelLinear(
            config.hidden_size, 1, config=config, init_method=config.init_method, bias=False, gather_output=True
        )
        self.model.output_layer = head
        return self.model


def model_provider(config, spec):
    return Provider().build(config, spec)
