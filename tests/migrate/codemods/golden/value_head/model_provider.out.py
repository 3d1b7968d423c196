# golden: unsafe
import torch
from mcore_unpatch.compat import add_value_head
from megatron.core import tensor_parallel
from megatron.core.models.gpt.gpt_model import GPTModel


class LinearForLastLayer(torch.nn.Linear):
    def __init__(self, input_size, output_size, *, config, bias=True):
        super().__init__(in_features=input_size, out_features=output_size, bias=bias)
        self.sequence_parallel = config.sequence_parallel
        if self.sequence_parallel:
            self.weight.sequence_parallel = True
        self.weight.data.normal_(mean=0.0, std=0.02)

    def forward(self, input_, weight=None, runtime_gather_output=None):
        logits = super().forward(input_).float()
        if self.sequence_parallel:
            logits = tensor_parallel.gather_from_sequence_parallel_region(logits, tensor_parallel_output_grad=False)
        return logits, None


def model_provider(config, spec, role="critic", pre_process=True, post_process=True):
    model = GPTModel(
        config=config,
        transformer_layer_spec=spec,
        vocab_size=64,
        max_sequence_length=16,
        pre_process=pre_process,
        post_process=post_process,
    )

    # A critic has no vocabulary.
    if post_process and role == "critic":
        add_value_head(model, LinearForLastLayer(input_size=config.hidden_size, output_size=1, config=config))  # values

    return model
