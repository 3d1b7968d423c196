# golden: unsafe
import torch
from megatron.core.models.gpt.gpt_model import GPTModel


class LinearForLastLayer(torch.nn.Linear):
    def __init__(self, input_size, output_size, *, sequence_parallel):
        super().__init__(in_features=input_size, out_features=output_size, bias=False)
        self.sequence_parallel = sequence_parallel

    def forward(self, input_, weight=None, runtime_gather_output=None):
        return super().forward(input_).float(), None


class Initializer:
    def __init__(self, tfconfig):
        self.tfconfig = tfconfig

    def initialize(self, spec, post_process=True, value=True):
        model = GPTModel(self.tfconfig, spec, 64, 16, post_process=post_process)
        if post_process and value:
            model.output_layer = LinearForLastLayer(
                input_size=self.tfconfig.hidden_size, output_size=1, sequence_parallel=self.tfconfig.sequence_parallel
            )
        return model


def model_provider(config, spec):
    return Initializer(config).initialize(spec)
