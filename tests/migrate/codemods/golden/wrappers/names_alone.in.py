# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_head(model: GPTModel, factor):
    original = model.output_layer.forward

    def forward(input_, weight=None, **kwargs):
        input_ = input_ * factor
        return original(input_, weight=weight, **kwargs)

    model.output_layer.forward = forward


def fix_dtype(model: GPTModel):
    original = model.decoder.final_layernorm.forward

    def forward(hidden_states):
        return original(hidden_states.to(model.decoder.final_layernorm.weight.dtype))

    model.decoder.final_layernorm.forward = forward


def double(model: GPTModel):
    original = model.embedding.forward

    def doubled(input_ids, position_ids):
        return original(input_ids=input_ids, position_ids=position_ids) * 2

    model.embedding.forward = doubled
