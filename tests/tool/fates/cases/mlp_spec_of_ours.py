"""Dense layers use an MLP class of ours."""

from megatron.core.models.gpt import gpt_layer_specs
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from megatron.core.transformer.spec_utils import ModuleSpec


class OurMLP(MLP):
    pass


def get_mlp_module_spec_for_backend(backend, num_experts=None, **kwargs):
    if num_experts is not None:
        raise NotImplementedError("only dense layers")
    submodules = MLPSubmodules(linear_fc1=backend.column_parallel_linear(), linear_fc2=backend.row_parallel_linear())
    return ModuleSpec(module=OurMLP, submodules=submodules)


gpt_layer_specs.get_mlp_module_spec_for_backend = get_mlp_module_spec_for_backend
