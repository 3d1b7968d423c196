# golden: unsafe
from megatron.core.models.gpt.gpt_model import GPTModel


def scale_head(model: GPTModel, factor):
    original = model.output_layer.forward

    def forward(input_, weight=None, **kwargs):
        used = weight if weight is not None else model.output_layer.weight
        return original(input_.clone(), weight=used * factor, **kwargs)

    model.output_layer.forward = forward


def fix_dtype(model: GPTModel):
    original = model.decoder.final_layernorm.forward

    def forward(hidden_states):
        return original(hidden_states.float())

    model.decoder.final_layernorm.forward = forward


def double(model: GPTModel):
    original = model.embedding.forward

    def doubled(input_ids, position_ids):
        return original(input_ids=input_ids, position_ids=position_ids) * 2

    model.embedding.forward = doubled
